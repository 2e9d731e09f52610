#pragma once

// What the conformance suite of codecs shares: the fixture, what the names in the table say,
// inputs. A namespace of its own, for short names that others have too.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compress/codec.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/compress/test_tensors.h"
#include "tests/conformance/codec_cases.h"

namespace runnel::codec_conformance {

inline constexpr uint64_t kSeed = 314159;
inline constexpr EncoderKey kKey = {7, RandomPurpose::kCodecBackward, 3};
inline const Shape kShapes[] = {{1}, {2}, {7}, {8}, {11}, {8, 4, 2, 2}, {5, 3, 7, 9}, {2, 33, 17}};

// The row of a codec by name, and the families that have cases of their own.
inline const CodecRow& RowOf(const std::string& name) {
  return **FindCodec(CodecId::Parse(name).value());
}
inline bool IsFamily(const std::string& name, absl::string_view family) {
  return RowOf(name).family == family;
}
inline bool IsStochastic(const std::string& name) { return IsFamily(name, "stochastic"); }
inline bool IsInt8(const std::string& name) { return IsFamily(name, "int8"); }
inline bool IsMbq(const std::string& name) { return IsFamily(name, "mbq"); }
inline bool IsTile(const std::string& name) {
  for (absl::string_view family : {"tile", "eden", "hadamard", "hadamard_ef"}) {
    if (IsFamily(name, family)) return true;
  }
  return false;
}
inline bool IsUniform(const std::string& name) { return IsFamily(name, "uniform"); }
inline bool Remembers(const std::string& name) { return RowOf(name).remembers; }
inline bool LearnsFromLoss(const std::string& name) { return RowOf(name).learns; }
inline int Bits(const std::string& name) {
  return static_cast<int>(RowOf(name).BitsOf(CodecId::Parse(name).value()));
}

class CodecConformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    RecordProperty("seed", static_cast<int>(kSeed));
    auto made = MakeCodec(GetParam());
    ASSERT_TRUE(made.ok()) << made.status();
    codec_ = std::move(*made);
  }

  size_t Size(const Shape& shape) const { return codec_->EncodedBytes(shape).value(); }

  Payload Encode(Encoder& encoder, const std::vector<float>& x, const Shape& shape,
                 int64_t sequence, bool restart = false) const {
    Payload payload(Size(shape), std::byte{0xA5});
    const absl::Status status =
        encoder.Encode(ViewOf(x, shape), Sequence(sequence), restart, absl::MakeSpan(payload));
    EXPECT_TRUE(status.ok()) << status;
    return payload;
  }

  absl::Status Decode(absl::Span<const std::byte> payload, const Shape& shape,
                      std::vector<float>* out) const {
    out->assign(shape.elements(), std::numeric_limits<float>::quiet_NaN());
    return codec_->Decode(payload, MutableViewOf(absl::MakeSpan(*out), shape));
  }

  std::vector<float> Decoded(const Payload& payload, const Shape& shape) const {
    std::vector<float> out;
    const absl::Status status = Decode(payload, shape, &out);
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }

  std::unique_ptr<const Codec> codec_;
};

inline std::vector<float> Input(const Shape& shape, uint64_t seed) {
  return NormalTensor(shape.elements(), kSeed + seed);
}

// ---- scaled int8 tensors

inline std::vector<int8_t> Mantissas(const Shape& shape, uint64_t seed) {
  const CounterRandom random(kSeed + seed, RandomPurpose::kTest, 1, 0);
  std::vector<int8_t> mantissas(shape.elements());
  for (size_t e = 0; e < mantissas.size(); ++e)
    mantissas[e] = static_cast<int8_t>(static_cast<int>(random.Below(e, 255)) - 127);
  return mantissas;
}

inline TensorView ScaledView(const std::vector<int8_t>& mantissas, int32_t exponent,
                             const Shape& shape) {
  return {
      DType::kInt8, shape, Layout::kRowMajor, exponent,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(mantissas.data()), mantissas.size())};
}

}  // namespace runnel::codec_conformance
