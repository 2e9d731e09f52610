#pragma once

// How many samples of a micro-batch a product takes at a time (--batch-split; Mandheling, section
// 3.5): what one slice of the batch reads and writes may stay in a cache where the whole does not.
//
//   off         the whole micro-batch
//   auto        as many as are fastest by a measurement on the worker, a divisor of the micro-batch
//   N           N, the last slice has what is left. The same bytes as off, as those of auto are:
//               the integer sums of the slices are added
//   shifted:N   likewise, but weight-gradients as in the paper: each slice's is rounded to int8
//   with
//               an exponent of its own, then they are aligned and added (kernels/ir/program.h). Other
//               bytes, which depend on N
//
// Integer recipes only. Plain data and a pure function; any thread.

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

enum class BatchSplitMode : uint8_t { kOff, kAuto, kSummed, kShifted };

struct BatchSplitRule {
  BatchSplitMode mode = BatchSplitMode::kOff;
  int64_t samples = 0;  // of a slice: kSummed, kShifted

  friend bool operator==(const BatchSplitRule&, const BatchSplitRule&) = default;
};

inline constexpr int64_t kMostSliceSamples = int64_t{1} << 20;

// InvalidArgument says what a text may be.
absl::StatusOr<BatchSplitRule> ParseBatchSplit(absl::string_view text);

}  // namespace runnel
