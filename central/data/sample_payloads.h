#pragma once

// Micro-batches of a run's data sets as payloads: samples for the first stage, labels for the stage
// with the loss.

#include <cstdint>

#include "central/data/augmentation.h"
#include "central/data/batch_source.h"
#include "central/data/dataset.h"
#include "proto/base/tensor/payload.h"

namespace runnel {

// One thread at a time.
class SamplePayloads {
 public:
  // augmentation: of the training samples. batch_size: BatchSource's. The pool and the data sets
  // outlive it.
  SamplePayloads(BufferPool* pool, const Dataset& train, const Dataset& test, uint64_t run_seed,
                 const Augmentation& augmentation, int64_t batch_size);

  // As BatchSource::IsReady and IsTestReady.
  bool AreTrainingSamplesReady(const MicroBatch& place) { return samples_source_.IsReady(place); }
  bool AreTestSamplesReady(int64_t first, int64_t count) {
    return test_source_.IsTestReady(first, count);
  }
  Payload TrainingSamples(const MicroBatch& place);
  Payload TrainingLabels(const MicroBatch& place);
  // `count` samples of the test set from `first` on.
  Payload TestSamples(int64_t first, int64_t count);
  Payload TestLabels(int64_t first, int64_t count);
  int64_t test_size() const { return test_.size(); }

 private:
  Payload Floats(int64_t count);

  BufferPool* const pool_;
  const Dataset& train_;
  const Dataset& test_;
  // Apart, since samples may be an epoch ahead of labels: each keeps the order of one epoch.
  BatchSource samples_source_;
  BatchSource labels_source_;
  BatchSource test_source_;
};

}  // namespace runnel
