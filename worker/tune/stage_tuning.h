#pragma once

// When a worker's backend is tuned: before a stage or a measurement is made ready, never within a
// step.

#include <memory>

#include "kernels/backends/backend.h"
#include "proto/base/log.h"
#include "worker/tune/tuning_store.h"

namespace runnel {

// Gives the backend the kept tunings of its device. Does nothing for a backend without a tuner.
// `logger` may be null, as below.
void AdoptTunings(Backend& backend, const TuningStore& store, Logger* logger);

// While it lives, programs prepared on the backend are tuned, for the tuner's usual time in all;
// the results are kept when it goes. Borrows all three.
class StageTuning {
 public:
  StageTuning(Backend& backend, const TuningStore& store, Logger* logger);
  ~StageTuning();
  StageTuning(const StageTuning&) = delete;
  StageTuning& operator=(const StageTuning&) = delete;

 private:
  Tuner* const tuner_;
  const TuningStore& store_;
  Logger* const logger_;
  std::unique_ptr<Backend> specification_;
  size_t known_ = 0;
};

}  // namespace runnel
