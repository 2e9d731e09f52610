#pragma once

// A codec whose payload is that of mbq:k, so that mbq decodes it, and whose encoder finds the
// levels in a way of its own.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "compress/kernels/codec_kernels.h"
#include "compress/mbq/mbq.h"

namespace runnel {

// OwnEncoder(k, kernels, key) makes an encoder of a link.
template <typename OwnEncoder>
class MbqPayloadCodec final : public Codec {
 public:
  // family: "mbq_c".
  MbqPayloadCodec(std::string family, int k, const CodecKernels& kernels)
      : family_(std::move(family)), k_(k), kernels_(kernels), decoder_(MakeMbqCodec(k, kernels)) {}

  std::string name() const override { return absl::StrCat(family_, ":", k_); }
  Bytes EncodedBytes(const Shape& shape) const override { return decoder_->EncodedBytes(shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<OwnEncoder>(k_, kernels_, key);
  }
  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    return decoder_->Decode(payload, out);
  }

 private:
  const std::string family_;
  const int k_;
  const CodecKernels& kernels_;
  const std::unique_ptr<const Codec> decoder_;
};

}  // namespace runnel
