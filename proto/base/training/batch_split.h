#pragma once

// Samples of a micro-batch in one product (--batch-split; Mandheling, section 3.5): the data of a
// slice of the batch may stay in a cache where the data of the whole do not.
//
//   off         the whole micro-batch
//   auto        the fastest number by a measurement on the worker, a divisor of the micro-batch
//   N           N, the last slice has the rest. auto and N give the bytes of off: the integer sums
//               of the slices are added
//   shifted:N   N, with weight-gradients as in the paper: each slice's is rounded to int8 with an
//               exponent of its own, then they are aligned and added (kernels/ir/program.h). The
//               bytes depend on N
//
// Integer recipes only. Plain data and a pure function; any thread.

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

enum class BatchSplitMode : uint8_t { kOff, kAuto, kSummed, kShifted };

struct BatchSplitRule {
  BatchSplitMode mode = BatchSplitMode::kOff;
  int64_t samples = 0;  // samples of a slice: kSummed, kShifted

  friend bool operator==(const BatchSplitRule&, const BatchSplitRule&) = default;
};

inline constexpr int64_t kMostSliceSamples = int64_t{1} << 20;

// InvalidArgument names the allowed texts.
absl::StatusOr<BatchSplitRule> ParseBatchSplit(absl::string_view text);

}  // namespace runnel
