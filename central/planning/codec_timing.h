#pragma once

// How long this host takes to encode and decode what crosses links.

#include "absl/status/statusor.h"
#include "central/planning/bandwidth_bits.h"
#include "proto/base/clock.h"

namespace runnel {

// Seconds that this machine takes for a byte of an FP32 tensor, to encode or decode it with 4 bits,
// whichever is slower: the median of a few. Takes some milliseconds. InvalidArgument for a family
// that is not known.
absl::StatusOr<double> MeasureCodecs(const BandwidthBits& bits, const Clock& clock);

}  // namespace runnel
