#pragma once

// The `bandwidth` policy for bits: on each link as many bits as it has time for, and no fewer than
// accuracy allows (DESIGN section 6). Which codecs there are to choose from is data; the choice is
// a pure function of it, for a planner to call with its own times.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/ids.h"
#include "proto/base/shape.h"

namespace runnel {

// One direction of a link could carry this.
struct CodecChoice {
  std::string codec;          // "hadamard:4"
  double bits = 32;           // an element, headers left out; identity 32
  double relative_error = 0;  // mean squared error over the mean square of a typical tensor
  Bytes payload_bytes;        // of the boundary tensor
};

// The codecs of a family that a direction may use, fewest bits first, then identity. Errors are
// those of a normal tensor (compress/link_bits.cc says where they come from). InvalidArgument for a
// family without bits.
absl::StatusOr<std::vector<CodecChoice>> CodecChoices(absl::string_view family, const Shape& shape);

// What a direction can take.
struct LinkTime {
  double megabits_per_second = 0;  // 0: not limited
  double available_seconds = 0;    // a micro-batch's: the slowest stage's compute
  // Of this device for one boundary tensor, encode or decode, whichever is slower.
  double codec_seconds = 0;
};

// The place in `choices` of the best one that the link has time for: the least error among those
// whose frame crosses, with its codec, in available_seconds; where none does, the one with the
// fewest bytes. Choices below `min_bits` are left out, unless nothing else is there: accuracy's
// floor, by phase of the training (MinBits). `choices` is not empty.
size_t ChooseCodec(absl::Span<const CodecChoice> choices, const LinkTime& link, double min_bits);

// The floor of AccEPT's schedules (4.3): activations need 2 bits at first, 3 from 0.65 of the run
// on and 4 from 0.875 (0.3 and 0.8 for har_cnn); gradients 4. progress: 0..1 of the epochs.
double MinBits(absl::string_view model, bool forward, double progress);

}  // namespace runnel
