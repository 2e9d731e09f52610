#pragma once

// The contract of a codec: what turns a boundary tensor into bytes and back (AccEPT 3.3, 3.4).
//
// A codec is prepared once from its name and parameters ("mbq:2", "stochastic:8", "identity",
// "int8"). Its size is known before anything is encoded. An encoder may have state; it is a
// function of the state at the last barrier and the tensors since. A decoder has none: a payload
// carries all that decoding needs. The exception are codecs that keep samples (aqsgd.h): their
// decoders too have a state, the encoder's. Encoded bytes and decoded values are the same on every
// instruction set and for any number of calls in between.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/base/ids.h"
#include "proto/base/model/number_format.h"
#include "proto/base/random.h"
#include "proto/base/tensor/tensor_view.h"
#include "proto/base/training/codecs/codec_id.h"

namespace runnel {

struct CodecKernels;  // codec_kernels.h

// Of an encoder's random draws.
inline RandomPurpose PurposeOf(Direction direction) {
  return direction == Direction::kForward ? RandomPurpose::kCodecForward
                                          : RandomPurpose::kCodecBackward;
}

// Key of an encoder's random draws: the same on any device that holds this end of the boundary.
struct EncoderKey {
  uint64_t run_seed = 0;
  RandomPurpose purpose = RandomPurpose::kCodecForward;  // PurposeOf the direction
  uint64_t boundary = 0;                                 // index of the layer whose output crosses
  // Cap of the stage that encodes: see Encoder::Learn, MaskGradient.
  int64_t in_flight = 1;
};

// Encodes one direction of one boundary. Not thread-safe: one lane owns it. Calls come in ascending
// sequence.
class Encoder {
 public:
  virtual ~Encoder() = default;

  // Writes exactly Codec::EncodedBytes(x.shape) bytes to `payload`.
  // restart: the first micro-batch of an epoch; adaptive state starts anew (AccEPT 3.3, t = 0).
  // What is learned from the loss stays.
  // InvalidArgument if x is not of a type that the codec takes, `payload` has another size, or a
  // value is NaN or infinite
  // (the message names the element's index); the state and the meaning of later calls are then
  // unchanged.
  virtual absl::Status Encode(const TensorView& x, Sequence sequence, bool restart,
                              absl::Span<std::byte> payload) = 0;

  // How many of the payload's bytes the last Encode needed: those behind them are 0 and need not be
  // sent. For codecs whose size varies.
  virtual size_t written() const { return 0; }

  // Says which samples the tensor of the next Encode holds, one for each of its rows (the first
  // dimension): their indices in the data set. For codecs that keep samples; no samples: not known.
  virtual void NameSamples(absl::Span<const int64_t> /*samples*/) {}

  // True: Learn is to be called.
  virtual bool learns() const { return false; }
  // Tells the encoder the gradient of the loss with respect to the decoded tensor of micro-batch
  // `sequence`, in ascending sequence. The encoder uses it from the Encode of micro-batch sequence
  // + EncoderKey::in_flight on: by then it has arrived whatever the network did, since no more
  // micro-batches are in flight. Ignored for a micro-batch that this encoder did not encode.
  // InvalidArgument for another size.
  virtual absl::Status Learn(const TensorView& /*gradient*/, Sequence /*sequence*/) {
    return absl::OkStatus();
  }

  // True: MaskGradient is to be called.
  virtual bool masks() const { return false; }
  // Masks the same gradient, in ascending sequence: sets it to 0 where the encoding clipped a value
  // and the gradient would push that value further out. The loss does not see such a push, and the
  // value would grow without end. The gradient stays as it is for a micro-batch that this encoder
  // did not encode, or that is older than the last EncoderKey::in_flight ones. InvalidArgument for
  // another size.
  virtual absl::Status MaskGradient(absl::Span<float> /*gradient*/, Sequence /*sequence*/) {
    return absl::OkStatus();
  }

  // The state as bytes, little-endian; empty for a stateless encoder. RestoreState takes what
  // SaveState gave, on any machine; InvalidArgument for anything else, and the encoder is then
  // unchanged. Empty bytes mean a fresh encoder.
  virtual std::string SaveState() const = 0;
  virtual absl::Status RestoreState(absl::string_view state) = 0;
};

// The receiving end of a codec that keeps samples (CodecRow::keeps_samples). Not thread-safe; calls
// come in the order of the encoder's.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // As Codec::Decode of a tensor with these samples, whose names the encoder got. InvalidArgument
  // also if the payload builds on something else than what is kept here; nothing changes then.
  virtual absl::Status Decode(absl::Span<const std::byte> payload,
                              absl::Span<const int64_t> samples, const MutableTensorView& out) = 0;
  // As Encoder's. At a barrier both ends have the same bytes, and each takes the other's.
  virtual std::string SaveState() const = 0;
  virtual absl::Status RestoreState(absl::string_view state) = 0;
};

// Immutable; any thread.
class Codec {
 public:
  virtual ~Codec() = default;

  // The name that makes this codec again: "mbq:2".
  virtual std::string name() const = 0;
  // Every codec takes FP32 tensors. True: it also takes scaled int8 tensors (TensorView::exponent)
  // and loses nothing of them: Encode a view of type kInt8, DecodeScaled.
  virtual bool takes_scaled() const { return false; }
  // True: a payload may end where the encoder's did (Encoder::written).
  virtual bool varies() const { return false; }
  // True: encoders are told the samples (Encoder::NameSamples), and NewDecoder decodes.
  virtual bool keeps_samples() const { return false; }
  // Payload bytes for a tensor of this shape, whatever its type; the most if the size varies.
  virtual Bytes EncodedBytes(const Shape& shape) const = 0;
  // Memory that each end takes for what it keeps of a data set of `samples` samples, with tensors of
  // this shape on the link.
  virtual Bytes KeptBytes(const Shape& /*shape*/, int64_t /*samples*/) const { return Bytes(0); }
  virtual std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const = 0;
  // Null: decoding has no state, Decode does it. The codec outlives it.
  virtual std::unique_ptr<Decoder> NewDecoder() const { return nullptr; }
  // Fills `out` (FP32, shape agreed for the generation). InvalidArgument if the payload's size is
  // not EncodedBytes(out.shape) or its contents are impossible (a NaN or infinite alpha or scale);
  // `out` is then unspecified. `payload` needs no alignment.
  virtual absl::Status Decode(absl::Span<const std::byte> payload,
                              const MutableTensorView& out) const = 0;
  // Decodes a scaled int8 tensor: fills shape.elements() mantissas and returns their exponent.
  // Errors as Decode, and for a mantissa of -128 or an exponent beyond +-kMaxExponent;
  // Unimplemented unless takes_scaled().
  virtual absl::StatusOr<int32_t> DecodeScaled(absl::Span<const std::byte> payload,
                                               const Shape& shape,
                                               absl::Span<std::byte> mantissas) const;
};

// Whether a link sends the elements of such a tensor as they are, without the codec: identity and
// floats that are not FP32.
bool SendsAsItIs(const Codec& codec, DType type);
// Payload bytes of a boundary tensor, at most if they vary: the codec's, or the elements as they are, and then the values
// beside the tensor (SidePayloadBytes of number_format.h).
Bytes PayloadBytes(const Codec& codec, const NumberFormat& format, Direction direction,
                   const Shape& shape);

// One row of the table of codecs: a family and the facts that others need of its codecs.
struct CodecRow {
  absl::string_view family;
  ParameterRange parameter;  // the part of the name after the colon
  // Loses nothing of the tensors that it is for: FP32, or scaled int8 if takes_scaled.
  bool lossless = false;
  bool takes_scaled = false;  // Codec::takes_scaled
  // Whether an encoder's payload depends on the tensors before.
  bool remembers = false;
  // Codec::keeps_samples: for activations, of a data set whose samples are the same in every epoch.
  bool keeps_samples = false;
  // Its encoders learn from the loss (Encoder::Learn): for FP32 activations only.
  bool learns = false;
  // Its encoders mask the gradients of FP32 activations (Encoder::MaskGradient).
  bool masks = false;
  // Its encoders add to a tensor what they lost of the one before (error feedback): for gradients
  // only, since the next activations are those of other samples.
  bool feeds_back = false;
  // Not for the tensors of integer recipes.
  bool floats_only = false;
  // Null: any parameter fits any tensor. Else the largest that says something of this shape.
  int64_t (*largest)(const Shape& shape) = nullptr;
  // Bits an element by parameter (0 without one) that the levels need, headers left out; null if
  // they depend on the shape.
  double (*bits)(double parameter);
  // Mean squared error over the mean square of a typical tensor (typical_errors.h): of activations
  // (kForward) and of gradients (kBackward), which some families round otherwise.
  double (*relative_error)(Direction direction, double parameter);
  // Of Codec::EncodedBytes, what such a tensor's payload takes where the size varies. Null: all.
  double (*size_share)(Direction direction, double parameter) = nullptr;
  // A parameter of the range.
  std::unique_ptr<const Codec> (*make)(double parameter, const CodecKernels& kernels);

  double BitsOf(const CodecId& codec) const { return bits(codec.parameter.value_or(0)); }
  double ErrorOf(const CodecId& codec, Direction direction) const {
    return relative_error(direction, codec.parameter.value_or(0));
  }
  double SizeShareOf(const CodecId& codec, Direction direction) const {
    return size_share == nullptr ? 1 : size_share(direction, codec.parameter.value_or(0));
  }
};

// The table, builtin_codecs.cc. Each row passes tests/conformance/codec_conformance_test.cc.
absl::Span<const CodecRow> BuiltinCodecs();
// InvalidArgument lists what there is, for a family that is not known and for a parameter that is
// not in its range.
absl::StatusOr<const CodecRow*> FindCodec(const CodecId& codec);
// InvalidArgument says for what the codec is, if not for tensors of this format and direction;
// errors also as FindCodec.
absl::Status CheckCodecFits(const CodecId& codec, const NumberFormat& format, Direction direction);
// Null: not known.
const CodecRow* FindCodecFamily(absl::string_view family);

// Errors as FindCodec.
absl::StatusOr<std::unique_ptr<const Codec>> MakeCodec(const CodecId& codec);
// Makes a codec from its text; errors also as CodecId::Parse.
absl::StatusOr<std::unique_ptr<const Codec>> MakeCodec(absl::string_view text);

// The codec families of this build, for the handshake and --help.
std::vector<CodecFamily> CodecFamilies();
// Codecs of every family: all parameters that are whole numbers, and a few ratios.
std::vector<CodecId> ExampleCodecs();
std::vector<std::string> ExampleCodecNames();

}  // namespace runnel
