#pragma once

// The codecs at a stage's two boundaries: encoders for what it sends, decoders for what it
// receives. A plan may name other codecs from epochs on (proto/base/codec_schedule.h): a
// micro-batch's epoch decides, and where the codec changes the encoder is a new one.
//
// Tensors are boundary tensors in memory (BoundaryBytes of number_format.h). A scaled one goes
// through a codec that takes scaled tensors as it is. Any other codec gets its values in FP32,
// which is exact, and what it decodes is quantised again (QuantizeRule::kPowerOfTwo), on all
// machines alike.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec.h"
#include "proto/base/batching.h"
#include "proto/base/codec_schedule.h"
#include "proto/base/model_state.h"
#include "proto/base/number_format.h"
#include "proto/base/payload.h"
#include "proto/base/plan.h"

namespace runnel {

// One lane owns it; SaveStates and RestoreStates only while the lane is empty.
class LinkCodecs {
 public:
  // InvalidArgument: a codec of the plan is not known here, is identity although the boundary is
  // scaled (central says int8 then), or learns from the loss and stands where it cannot.
  static absl::StatusOr<std::unique_ptr<LinkCodecs>> Create(const Plan& plan, int stage,
                                                            uint64_t run_seed,
                                                            const NumberFormat& format = {});

  // up: the gradient for the stage before; else the activation for the next one. Errors as
  // Encoder::Encode.
  absl::Status Encode(bool up, const MicroBatch& place, const Shape& shape,
                      absl::Span<const std::byte> tensor, absl::Span<std::byte> payload);
  // up: the gradient from the next stage; else the activation from the one before. Fills
  // TensorBytes(shape) bytes. Errors as Codec::Decode.
  absl::Status Decode(bool up, const MicroBatch& place, absl::Span<const std::byte> payload,
                      const Shape& shape, absl::Span<std::byte> tensor);

  // An evaluation's activation crosses without loss: in FP32 as it stands, scaled as codec int8
  // sends it. Both give `from` itself where nothing changes. Errors as above. While the lane is
  // empty, also from another one.
  absl::StatusOr<Payload> PackEvaluation(const Shape& shape, Payload from, BufferPool& pool) const;
  absl::StatusOr<Payload> UnpackEvaluation(const Shape& shape, Payload from,
                                           BufferPool& pool) const;
  int64_t EvaluationBytes(const Shape& shape) const;
  uint8_t EvaluationBits() const { return evaluation_ == nullptr ? 32 : 8; }

  // Bytes of a boundary tensor in memory.
  int64_t TensorBytes(const Shape& shape) const { return BoundaryBytes(format_, shape); }
  // Payload bytes of what is sent, in that direction and epoch; 0 where nothing is.
  int64_t EncodedBytes(bool up, int64_t epoch, const Shape& shape) const;
  // The most that is received, in that direction in any epoch; 0 where nothing is.
  int64_t MaxReceivedBytes(bool up, const Shape& shape) const;
  // What a header says of what is sent, for people and dashboards: bits an element, 32 is identity;
  // the exponent of a payload that has one.
  uint8_t Bits(bool up, int64_t epoch) const;
  int32_t Exponent(bool up, int64_t epoch, absl::Span<const std::byte> payload) const;
  int32_t EvaluationExponent(absl::Span<const std::byte> payload) const;

  std::vector<EncoderState> SaveStates() const;
  // Takes the states that belong here; an encoder without one starts anew. InvalidArgument for a
  // broken one.
  absl::Status RestoreStates(const std::vector<EncoderState>& states);

 private:
  // The codecs of a schedule.
  struct Codecs {
    std::vector<CodecStep> steps;  // empty: nothing goes this way
    std::vector<std::unique_ptr<const Codec>> made;

    // Null: nothing goes this way.
    const Codec* InEpoch(int64_t epoch) const {
      return steps.empty() ? nullptr : made[StepInEpoch(steps, epoch)].get();
    }
  };
  struct Direction {
    EncoderKey key;
    Codecs sends;
    // Of the last micro-batch, or restored; null: none yet. encoder_of made it.
    std::unique_ptr<Encoder> encoder;
    const Codec* encoder_of = nullptr;
    Codecs receives;
  };
  Direction& at(bool up) { return directions_[up ? 1 : 0]; }
  const Direction& at(bool up) const { return directions_[up ? 1 : 0]; }
  absl::Status CheckTensor(const Shape& shape, size_t bytes) const;
  absl::StatusOr<Codecs> Make(const std::string& schedule, bool down) const;
  static Encoder& EncoderFor(const Codec& codec, Direction& direction);

  NumberFormat format_;
  Direction directions_[2];
  std::unique_ptr<const Codec> evaluation_;  // null: FP32
  std::vector<float> floats_;                // a scaled tensor on its way through an FP32 codec
};

}  // namespace runnel
