#pragma once

// The `bandwidth` policy for bits: on each link as many bits as it has time for, and no fewer than
// accuracy allows. Which codecs there are to choose from is data; the choice is
// a pure function of it, for a planner to call with its own times.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "compress/bit_schedule.h"
#include "proto/base/ids.h"
#include "proto/base/plan/link_rate.h"
#include "proto/base/tensor/shape.h"
#include "proto/base/training/codec_schedule.h"

namespace runnel {

// One codec that a direction of a link could use, and its cost.
struct BitsChoice {
  CodecId codec;
  double bits = 32;           // an element, headers left out; identity 32, int8 8
  double relative_error = 0;  // mean squared error over the mean square of a typical tensor
  Bytes payload_bytes;        // payload of the boundary tensor
};

// The family of --bits bandwidth where the user names none: the least error of those without state.
inline constexpr absl::string_view kBandwidthFamily = "hadamard";

// The codecs of a family that a direction may use, fewest bits first, then `exact`, which loses
// nothing (LosslessCodec); only those of the family with fewer bits than `exact`. InvalidArgument
// for a family whose parameter is no number of bits, and for an `exact` that loses something.
absl::StatusOr<std::vector<BitsChoice>> BitsChoices(absl::string_view family, const Shape& shape,
                                                    const CodecId& exact = CodecId::Identity());

// Time that a direction has for a micro-batch.
struct LinkTime {
  LinkRate rate;                 // not set: no limit
  double available_seconds = 0;  // a micro-batch's: the slowest part of the pipeline
  // Seconds of this device to encode or decode one boundary tensor, whichever is slower; identity
  // needs none.
  double codec_seconds = 0;
};

// The place in `choices` of the best one that the link has time for: the least error among those
// whose frame crosses, with its codec, in available_seconds; where none does, the fastest one, and
// of those as fast the one with the least error. Choices below `min_bits` are left out, unless
// nothing else is there: accuracy's floor, by phase of the training (MinBitsByEpoch). On a slower
// link it never has more bits. `choices` is not empty.
size_t ChooseCodec(absl::Span<const BitsChoice> choices, const LinkTime& link, double min_bits);

// The floor by epoch of a run: of activations the bits that AccEPT's schedule has then, of
// gradients 4.
std::vector<BitStep> MinBitsByEpoch(const BitSwitches& switches, Direction direction,
                                    int64_t epochs);

// ChooseCodec in every phase of a run. `floors` as MinBitsByEpoch gives.
CodecSchedule CodecsInTime(absl::Span<const BitsChoice> choices, const LinkTime& link,
                           absl::Span<const BitStep> floors);
// In every phase the fewest bits that are at least `bits` and at least the floor; without such a
// choice the largest choice.
CodecSchedule CodecsWithBits(absl::Span<const BitsChoice> choices, double bits,
                             absl::Span<const BitStep> floors);

// The mean over a run of CodecRow::relative_error. InvalidArgument for a codec that is not known.
absl::StatusOr<double> MeanRelativeError(const CodecSchedule& codecs, int64_t epochs);

}  // namespace runnel
