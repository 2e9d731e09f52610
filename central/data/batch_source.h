#pragma once

// Fills micro-batches from a data set, in the order that the run seed and the epoch give, with the
// augmentation that these and the sample give.

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "central/data/augmentation.h"
#include "central/data/dataset.h"
#include "central/data/read_ahead.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/epoch_order.h"

namespace runnel {

// Borrows the data set. Keeps the permutation of the epoch last asked for; one thread at a time.
class BatchSource {
 public:
  // augmentation: fits the samples (CheckFits). batch_size: samples of a mini-batch; counts where
  // some samples are new.
  BatchSource(const Dataset& dataset, uint64_t run_seed, const Augmentation& augmentation = {},
              int64_t batch_size = 1);

  // Whether Fill, and FillTest, give samples at once: those of a data set that reads files are read
  // by other threads first, from the first question on, and the next ones behind them.
  bool IsReady(const MicroBatch& place);
  bool IsTestReady(int64_t first, int64_t count);

  // Waits for files. place: from a Batching over dataset.size() samples. samples: place.samples *
  // sample_shape().elements() values; labels: place.samples * labels_per_sample(). Either may be
  // empty: not wanted.
  void Fill(const MicroBatch& place, absl::Span<float> samples, absl::Span<int32_t> labels);

  // Samples first..first + count - 1 as they are in the data set's own order, for evaluation. Sizes
  // as above; first + count <= dataset.size().
  void FillTest(int64_t first, int64_t count, absl::Span<float> samples,
                absl::Span<int32_t> labels);

 private:
  void EnterEpoch(int64_t epoch);
  // Of a data set that reads files, those of the micro-batch first, and as many of the next ones as
  // memory should hold.
  std::vector<int64_t> SamplesFrom(const MicroBatch& place) const;
  std::vector<int64_t> TestFrom(int64_t first, int64_t count) const;
  // Other threads begin with them; the same again changes nothing.
  void Want(const std::vector<int64_t>& indices);
  int64_t MostAhead(int64_t samples) const;
  // As Dataset::CopySample.
  void CopyRead(int64_t index, absl::Span<float> out);
  void CopyAugmented(int64_t index, absl::Span<float> out);
  // All but mixup.
  void CopyTransformed(int64_t index, absl::Span<float> out);
  // Of sample `index`, for the sample at `place`.
  void CopyLabels(int64_t index, int64_t place, absl::Span<int32_t> labels) const;

  const Dataset& dataset_;
  uint64_t run_seed_;
  int64_t batch_size_;
  Augmentation augmentation_;
  // Used in augmented runs only.
  std::vector<float> outside_;  // by channel
  std::vector<float> sample_;   // as in the data set
  std::vector<float> other_;    // to be mixed in
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;  // sample order of epoch_
  // Null until a sample of a data set that reads files is wanted.
  std::unique_ptr<ReadAhead<std::vector<float>>> ahead_;
  std::vector<int64_t> wanted_;  // last
};

}  // namespace runnel
