#pragma once

// The codecs that --bits bandwidth chooses among, by direction, and what each of them costs in
// learning; the planner weighs that against time. Pure functions.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/bit_schedule.h"
#include "proto/base/ids.h"
#include "proto/base/training/codecs/codec_schedule.h"
#include "proto/base/training/codecs/tensor_error.h"

namespace runnel {

// One codec that a direction of a link could use.
struct BitsChoice {
  CodecId codec;
  double bits = 32;  // an element, headers left out; identity 32, int8 8
};

// The family of --bits bandwidth where the user names none: the least error of both directions
// together, of those without state.
inline constexpr absl::string_view kBandwidthFamily = "eden";
// --learning-budget where the user gives none: most that codecs may add to the gradients' noise, %.
inline constexpr double kLearningBudgetPercent = 5;

// The codecs of a family that a direction may use, fewest bits first, then `exact`, which loses
// nothing (LosslessCodec); only those of the family with fewer bits than `exact`. InvalidArgument
// for a family whose parameter is no number of bits, and for an `exact` that loses something.
absl::StatusOr<std::vector<BitsChoice>> BitsChoices(absl::string_view family,
                                                    const CodecId& exact = CodecId::Identity());

// The floor by epoch of a run: of activations the bits that AccEPT's schedule has then, of
// gradients 4.
std::vector<BitStep> MinBitsByEpoch(const BitSwitches& switches, Direction direction,
                                    int64_t epochs);

// In every phase the fewest bits that are at least `bits` and at least the floor; without such a
// choice the largest choice.
CodecSchedule CodecsWithBits(absl::Span<const BitsChoice> choices, double bits,
                             absl::Span<const BitStep> floors);

// What codecs lose of a tensor in this direction, by CodecRow::relative_error; the mean over a run.
// InvalidArgument for a codec that is not known.
absl::StatusOr<TensorError> MeanTensorError(const CodecSchedule& codecs, Direction direction,
                                            int64_t epochs);

// What payloads take over a run of the bytes that MeanEncodedBytes has: CodecRow::size_share, by the
// bits of each part. Errors as above.
absl::StatusOr<double> MeanSizeShare(const CodecSchedule& codecs, Direction direction,
                                     int64_t epochs);

}  // namespace runnel
