#pragma once

// The run that tests of the coordinator begin with.

#include <string>

#include "central/run/machines/coordinator.h"
#include "partition/zoo/zoo.h"
#include "tests/central/run/machines/machine_effects.h"
#include "tests/central/sample_hello.h"

namespace runnel {

// LeNet (layers 0..5) to step 100, of 100 steps an epoch, with a barrier every 40 steps and no
// evaluation; by central's worker and so many that dial in.
inline CoordinatorOptions LeNetRun(int dialling_workers) {
  CoordinatorOptions options;
  options.stage.model = MakeModel("lenet").value();
  options.stage.training.dataset_samples = 1000;
  options.stage.training.batch_size = 10;
  options.stage.training.eval_batch_size = 10;
  options.barriers.rule = {
      .every = 40, .eval_every_epochs = 0, .steps_per_epoch = 100, .epochs = 1};
  options.barriers.stop_step = 100;
  options.roster = {.local_workers = 1,
                    .dialling_workers = dialling_workers,
                    .recipe = "fp32",
                    .codecs = {CodecId::Identity()}};
  return options;
}

// Workers w0, w1, ... on connections of their own numbers; w0 is central's own.
inline void JoinWorkers(Coordinator& coordinator, int workers) {
  for (int i = 0; i < workers; ++i)
    coordinator.Joined(ConnectionId(i), SampleHello("w" + std::to_string(i)), i == 0);
}

}  // namespace runnel
