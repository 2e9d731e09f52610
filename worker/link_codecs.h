#pragma once

// The codecs at a stage's two boundaries: encoders for what it sends, decoders for what it
// receives.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec.h"
#include "proto/base/model_state.h"
#include "proto/base/plan.h"

namespace runnel {

// One lane owns it; SaveStates and RestoreStates only while the lane is empty.
class LinkCodecs {
 public:
  // InvalidArgument: a codec of the plan is not known here.
  static absl::StatusOr<std::unique_ptr<LinkCodecs>> Create(const Plan& plan, int stage,
                                                            uint64_t run_seed);

  // up: the gradient for the stage before; else the activation for the next one. Errors as
  // Encoder::Encode.
  absl::Status Encode(bool up, const TensorView& x, Sequence sequence, bool restart,
                      absl::Span<std::byte> payload);
  // up: the gradient from the next stage; else the activation from the one before. Errors as
  // Codec::Decode.
  absl::Status Decode(bool up, absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const;

  // Payload bytes of what is sent (sends = true) or received, in that direction.
  int64_t EncodedBytes(bool sends, bool up, const Shape& shape) const;
  // Bits an element that a header names; 32 is identity.
  uint8_t Bits(bool up) const;

  std::vector<EncoderState> SaveStates() const;
  // Takes the states that belong here; an encoder without one starts anew. InvalidArgument for a
  // broken one.
  absl::Status RestoreStates(const std::vector<EncoderState>& states);

 private:
  struct Direction {
    int boundary = 0;
    std::unique_ptr<const Codec> sends;  // null: nothing goes this way
    std::unique_ptr<Encoder> encoder;
    std::unique_ptr<const Codec> receives;  // null: nothing comes this way
  };
  Direction& at(bool up) { return directions_[up ? 1 : 0]; }
  const Direction& at(bool up) const { return directions_[up ? 1 : 0]; }

  Direction directions_[2];
};

}  // namespace runnel
