#pragma once

// The codecs at a stage's two boundaries: encoders for what it sends, decoders for what it
// receives. A plan may name other codecs from epochs on (proto/base/training/codecs/codec_schedule.h): a
// micro-batch's epoch decides, and where the codec changes the encoder is a new one.
//
// Tensors are boundary tensors in memory (BoundaryBytes of number_format.h). A lossless codec sends
// their elements as they are: identity floats, a codec that takes scaled tensors scaled ones. Any
// other codec gets the values in FP32, which is exact, and what it decodes is rounded to the
// boundary's type again (NumberType::from_float), on all machines alike. Values that stand behind a
// tensor (SidePlaces) follow the codec's bytes in its payload; each is checked on both ends.
//
// Codec `recipe` sends a micro-batch's bits (proto/base/training/codecs/link_levels.h): the sender by the
// level of the micro-batch's step, the receiver by the payload's size and, of the levels that have it,
// by the bits that the payload says, since a frame may come before the grant that brings the level's
// change.
//
// Of a codec that keeps samples both ends have a state. They are the same bytes at a barrier, so that
// both are saved as the encoder's, and the encoder's is for both.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compress/codec.h"
#include "proto/base/model/model_state.h"
#include "proto/base/model/number_format.h"
#include "proto/base/plan/plan.h"
#include "proto/base/tensor/payload.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/codecs/codec_schedule.h"
#include "proto/base/training/codecs/link_levels.h"

namespace runnel {

// Names the samples of micro-batches by their indices in the data set.
class SampleNames {
 public:
  // samples: of the data set; 0: they have no names.
  SampleNames(int64_t samples, uint64_t run_seed) : samples_(samples), run_seed_(run_seed) {}

  absl::Span<const int64_t> Of(const MicroBatch& place);

 private:
  int64_t samples_;
  uint64_t run_seed_;
  int64_t epoch_ = -1;  // of order_
  std::vector<int64_t> order_;
};

// What of a run's training its links depend on.
struct LinkRun {
  uint64_t seed = 1;
  // Of the data set that is trained on; 0: codecs keep nothing of its samples.
  int64_t dataset_samples = 0;
  LinkLevels levels = {};
  std::vector<TrainingChange> changes = {};  // decided so far
};

// One lane owns it; SaveStates and RestoreStates only while the lane is empty.
class LinkCodecs {
 public:
  // InvalidArgument: a codec of the plan is not known here, is identity although the boundary is
  // scaled (central says int8 then), or does not fit (CheckCodecFits).
  static absl::StatusOr<std::unique_ptr<LinkCodecs>> Create(const Plan& plan, int stage,
                                                            LinkRun run,
                                                            const NumberFormat& format = {});

  // A decision that holds from a barrier on, while nothing is encoded.
  void ChangeTraining(const TrainingChange& change) { AddTrainingChange(change, run_.changes); }

  // kForward: the activation for the next stage; kBackward: the gradient for the one before.
  // payload: EncodedBytes; the result says how many of them to send. Errors as Encoder::Encode and
  // SideValue::Check.
  absl::StatusOr<size_t> Encode(Direction direction, const MicroBatch& place, const Shape& shape,
                                absl::Span<const std::byte> tensor, absl::Span<std::byte> payload);
  // kForward: the activation from the stage before; kBackward: the gradient from the next one.
  // Fills TensorBytes(direction, shape) bytes. Errors as Codec::Decode and SideValue::Check.
  absl::Status Decode(Direction direction, const MicroBatch& place,
                      absl::Span<const std::byte> payload, const Shape& shape,
                      absl::Span<std::byte> tensor);

  // An evaluation's activation crosses without loss: floats as they are, scaled as codec int8
  // sends it. Both give `from` itself where nothing changes. Errors as above. While the lane is
  // empty, also from another one.
  absl::StatusOr<Payload> PackEvaluation(const Shape& shape, Payload from, BufferPool& pool) const;
  absl::StatusOr<Payload> UnpackEvaluation(const Shape& shape, Payload from,
                                           BufferPool& pool) const;
  int64_t EvaluationBytes(const Shape& shape) const;

  // In between encoders and decoders are copies of those that trained, which come back at the end as
  // they were. While the lane is empty. Errors as RestoreStates.
  absl::Status BeginDryRun();
  void EndDryRun();

  // Bytes of a boundary tensor in memory.
  int64_t TensorBytes(Direction direction, const Shape& shape) const {
    return BoundaryBytes(format_, shape, direction);
  }
  // Payload bytes sent in this direction of a micro-batch, at most if they vary; 0 where nothing is
  // sent, and where Encode has an error for its bits.
  int64_t EncodedBytes(Direction direction, const MicroBatch& place, const Shape& shape) const;
  // The most that is received, in that direction in any epoch; 0 where nothing is.
  int64_t MaxReceivedBytes(Direction direction, const Shape& shape) const;

  std::vector<EncoderState> SaveStates() const;
  // Takes the states that belong here; an end without one starts anew. InvalidArgument for a
  // broken one.
  absl::Status RestoreStates(const std::vector<EncoderState>& states);

 private:
  // The codecs of a schedule.
  struct Codecs {
    CodecSchedule schedule;
    std::vector<std::unique_ptr<const Codec>> made;  // by step; empty: nothing goes this way
    // In the place of codec `recipe`, by bits; empty: no step has it, or the recipe no grids.
    std::vector<std::unique_ptr<const Codec>> of_levels;

    // Null: nothing goes this way.
    const Codec* InEpoch(int64_t epoch) const {
      return made.empty() ? nullptr : made[schedule.StepIn(epoch)].get();
    }
    // Whether one of of_levels takes the place of InEpoch.
    bool HasLevels(int64_t epoch) const {
      return !of_levels.empty() && schedule.steps()[schedule.StepIn(epoch)].codec == RecipeCodec();
    }
  };
  // The encoder or decoder of the last micro-batch, or a restored one; null: none yet.
  template <typename Coder>
  struct Used {
    std::unique_ptr<Coder> coder;
    const Codec* made_by = nullptr;
  };
  // Both codec ends of one direction: what this stage sends and receives.
  struct Ends {
    EncoderKey key;
    Codecs sends;
    Used<Encoder> encoder;
    Codecs receives;
    Used<Decoder> decoder;  // of codecs that keep samples
    // In a dry run: those of training.
    Used<Encoder> kept_encoder;
    Used<Decoder> kept_decoder;
    SampleNames sent_samples = {0, 0};
    SampleNames received_samples = {0, 0};
  };
  Ends& at(Direction direction) { return ends_[static_cast<int>(direction)]; }
  const Ends& at(Direction direction) const { return ends_[static_cast<int>(direction)]; }
  absl::Status CheckTensor(Direction direction, const Shape& shape, size_t bytes) const;
  absl::Status CheckPayload(Direction direction, const Codec& codec, const Shape& shape,
                            size_t bytes) const;
  // Gives the bytes that the codec needed.
  absl::StatusOr<size_t> EncodeElements(const Codec& codec, Direction direction,
                                        const MicroBatch& place, const Shape& shape,
                                        absl::Span<const std::byte> tensor,
                                        absl::Span<std::byte> payload);
  absl::Status DecodeElements(const Codec& codec, Direction direction, const MicroBatch& place,
                              absl::Span<const std::byte> payload, const Shape& shape,
                              absl::Span<std::byte> tensor);
  // Values in FP32.
  absl::Status DecodeFloats(const Codec& codec, Direction direction, const MicroBatch& place,
                            absl::Span<const std::byte> payload, const MutableTensorView& out);
  absl::StatusOr<Codecs> Make(const CodecSchedule& schedule, Direction direction) const;
  // Null: nothing goes this way. Internal: the micro-batch's bits are those of no level.
  absl::StatusOr<const Codec*> SentCodec(Direction direction, const MicroBatch& place) const;
  // InvalidArgument: no level has payloads of so many bytes.
  absl::StatusOr<const Codec*> ReceivedCodec(Direction direction, const MicroBatch& place,
                                             const Shape& shape,
                                             absl::Span<const std::byte> payload) const;
  // Makes `used` a coder of this codec, which goes on from what another one kept if it can.
  template <typename Coder, typename MakeFn>
  static void MakeCoder(const Codec& codec, Used<Coder>& used, MakeFn make);
  // The codec that goes on from the state; null: none.
  static const Codec* HeirOf(const EncoderState& state, const Codecs& codecs);
  bool KeepsSamples(const Codecs& codecs) const;
  static Encoder& EncoderFor(const Codec& codec, Ends& ends);
  static Decoder& DecoderFor(const Codec& codec, Ends& ends);
  // The layer before the boundary from which activations come.
  int boundary_above() const { return static_cast<int>(at(Direction::kBackward).key.boundary); }

  NumberFormat format_;
  LinkRun run_;
  Ends ends_[2];
  std::unique_ptr<const Codec> evaluation_;  // null: floats
  std::vector<float> floats_;                // a tensor of another type on its way through a codec
};

}  // namespace runnel
