#include "compress/aqsgd.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/sample_memory.h"
#include "compress/tile/tile.h"
#include "compress/typical_errors.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kMarkBytes = sizeof(uint32_t);

size_t MarksBytes(const Shape& shape) { return kMarkBytes * static_cast<size_t>(shape[0]); }

std::string NameOfBits(int bits) { return absl::StrCat("aqsgd:", bits); }

// The part of a tensor that is sample i's.
absl::Span<float> RowOf(float* values, const Shape& shape, size_t i) {
  const auto elements = static_cast<size_t>(shape.elements() / shape[0]);
  return {values + i * elements, elements};
}

uint32_t MarkAt(absl::Span<const std::byte> payload, size_t i) {
  return static_cast<uint32_t>(LoadInt32(payload.data() + kMarkBytes * i));
}

absl::Status CheckSamples(int bits, const Shape& shape, absl::Span<const int64_t> samples) {
  if (static_cast<int64_t>(samples.size()) == shape[0]) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      NameOfBits(bits), ": ", samples.size(), " samples are named for shape ", shape.ToString()));
}

class AqsgdEncoder final : public Encoder {
 public:
  AqsgdEncoder(int bits, std::shared_ptr<const Codec> coder, const EncoderKey& key)
      : bits_(bits), coder_(std::move(coder)), encoder_(coder_->NewEncoder(key)) {}

  void NameSamples(absl::Span<const int64_t> samples) override {
    samples_.assign(samples.begin(), samples.end());
  }
  absl::Status Encode(const TensorView& x, Sequence sequence, bool restart,
                      absl::Span<std::byte> payload) override;
  std::string SaveState() const override { return memory_.Save(); }
  absl::Status RestoreState(absl::string_view state) override {
    return memory_.Restore(NameOfBits(bits_), state);
  }

 private:
  // Writes the marks and makes difference_ of x.
  void TakeDifference(const TensorView& x, absl::Span<std::byte> payload);

  const int bits_;
  const std::shared_ptr<const Codec> coder_;
  const std::unique_ptr<Encoder> encoder_;
  std::vector<int64_t> samples_;  // of the tensor that comes next; empty: not known
  SampleMemory memory_;
  std::vector<float> difference_;
};

void AqsgdEncoder::TakeDifference(const TensorView& x, absl::Span<std::byte> payload) {
  difference_.assign(x.f32(), x.f32() + x.shape.elements());
  for (size_t i = 0; i < static_cast<size_t>(x.shape[0]); ++i) {
    const absl::Span<float> row = RowOf(difference_.data(), x.shape, i);
    uint32_t mark = SampleMemory::kNothing;
    if (!samples_.empty()) mark = memory_.MarkOf(samples_[i], row.size());
    StoreInt32(static_cast<int32_t>(mark), payload.data() + kMarkBytes * i);
    if (mark != SampleMemory::kNothing) memory_.Subtract(samples_[i], row);
  }
}

absl::Status AqsgdEncoder::Encode(const TensorView& x, Sequence sequence, bool restart,
                                  absl::Span<std::byte> payload) {
  const auto marks = static_cast<int64_t>(MarksBytes(x.shape));
  RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(
      x, payload.size(), Bytes(marks + coder_->EncodedBytes(x.shape).value())));
  const auto n = static_cast<size_t>(x.shape.elements());
  if (BestCodecKernels().max_abs_bits(x.f32(), n) >= kInfinityBits)
    return NonFiniteError(x.f32(), n);
  if (!samples_.empty()) RUNNEL_RETURN_IF_ERROR(CheckSamples(bits_, x.shape, samples_));
  TakeDifference(x, payload);
  const absl::Span<std::byte> coded = payload.subspan(MarksBytes(x.shape));
  RUNNEL_RETURN_IF_ERROR(encoder_->Encode(ViewOf(difference_, x.shape), sequence, restart, coded));
  if (samples_.empty()) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(
      coder_->Decode(coded, MutableViewOf(absl::MakeSpan(difference_), x.shape)));
  for (size_t i = 0; i < samples_.size(); ++i) {
    if (MarkAt(payload, i) == SampleMemory::kNothing) memory_.Forget(samples_[i]);
    memory_.AddTo(samples_[i], RowOf(difference_.data(), x.shape, i));
  }
  return absl::OkStatus();
}

class AqsgdDecoder final : public Decoder {
 public:
  AqsgdDecoder(int bits, std::shared_ptr<const Codec> coder)
      : bits_(bits), coder_(std::move(coder)) {}

  absl::Status Decode(absl::Span<const std::byte> payload, absl::Span<const int64_t> samples,
                      const MutableTensorView& out) override;
  std::string SaveState() const override { return memory_.Save(); }
  absl::Status RestoreState(absl::string_view state) override {
    return memory_.Restore(NameOfBits(bits_), state);
  }

 private:
  const int bits_;
  const std::shared_ptr<const Codec> coder_;
  SampleMemory memory_;
};

absl::Status AqsgdDecoder::Decode(absl::Span<const std::byte> payload,
                                  absl::Span<const int64_t> samples, const MutableTensorView& out) {
  const auto marks = static_cast<int64_t>(MarksBytes(out.shape));
  RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(
      payload.size(), Bytes(marks + coder_->EncodedBytes(out.shape).value()), out));
  RUNNEL_RETURN_IF_ERROR(CheckSamples(bits_, out.shape, samples));
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint32_t mark = MarkAt(payload, i);
    const size_t elements = RowOf(out.f32(), out.shape, i).size();
    if (mark == SampleMemory::kNothing || mark == memory_.MarkOf(samples[i], elements)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(NameOfBits(bits_), ": sample ", samples[i],
                     " is a difference to something else than what is kept of it"));
  }
  RUNNEL_RETURN_IF_ERROR(coder_->Decode(payload.subspan(MarksBytes(out.shape)), out));
  for (size_t i = 0; i < samples.size(); ++i) {
    if (MarkAt(payload, i) == SampleMemory::kNothing) memory_.Forget(samples[i]);
    memory_.AddTo(samples[i], RowOf(out.f32(), out.shape, i));
  }
  return absl::OkStatus();
}

class AqsgdCodec final : public Codec {
 public:
  AqsgdCodec(int bits, const CodecKernels& kernels)
      : bits_(bits), coder_(MakeTileCodec({.bits = bits, .rotate = true}, kernels)) {}

  std::string name() const override { return NameOfBits(bits_); }
  bool keeps_samples() const override { return true; }
  Bytes EncodedBytes(const Shape& shape) const override {
    return Bytes(static_cast<int64_t>(MarksBytes(shape)) + coder_->EncodedBytes(shape).value());
  }
  Bytes KeptBytes(const Shape& shape, int64_t samples) const override {
    return Bytes(SampleMemory::Bytes(samples, shape.elements() / shape[0]));
  }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<AqsgdEncoder>(bits_, coder_, key);
  }
  std::unique_ptr<Decoder> NewDecoder() const override {
    return std::make_unique<AqsgdDecoder>(bits_, coder_);
  }
  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override;

 private:
  const int bits_;
  const std::shared_ptr<const Codec> coder_;
};

absl::Status AqsgdCodec::Decode(absl::Span<const std::byte> payload,
                                const MutableTensorView& out) const {
  RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), EncodedBytes(out.shape), out));
  for (size_t i = 0; i < static_cast<size_t>(out.shape[0]); ++i) {
    if (MarkAt(payload, i) == SampleMemory::kNothing) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name(), ": row ", i, " is a difference to what was sent of its sample before"));
  }
  return coder_->Decode(payload.subspan(MarksBytes(out.shape)), out);
}

}  // namespace

std::unique_ptr<const Codec> MakeAqsgdCodec(int bits, const CodecKernels& kernels) {
  return std::make_unique<AqsgdCodec>(bits, kernels);
}

double AqsgdError(double bits) { return HadamardError(Direction::kForward, bits); }

}  // namespace runnel
