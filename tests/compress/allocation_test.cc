// A micro-batch on its way through a codec asks for no memory.

#include "compress/codec.h"
#include "gtest/gtest.h"
#include "tests/base/counted_allocations.h"
#include "tests/compress/test_tensors.h"

namespace runnel::allocation_test {
namespace {

// After the first micro-batch, which may make memory for the state. What learns from the loss keeps
// each tensor until its gradient comes.
TEST(Allocation, EncodeAndDecodeMakeNone) {
  const Shape shape = {8, 16, 7, 7};
  const std::vector<float> x = NormalTensor(shape.elements(), 3);
  std::vector<float> out(x.size());
  for (const std::string& name : ExampleCodecNames()) {
    if (FindCodec(CodecId::Parse(name).value()).value()->learns) continue;
    const auto codec = MakeCodec(name).value();
    const auto encoder = codec->NewEncoder({});
    std::vector<std::byte> payload(codec->EncodedBytes(shape).value());
    const auto encode = [&](int64_t sequence) {
      return encoder
          ->Encode(ViewOf(x, shape), Sequence(sequence), sequence == 2, absl::MakeSpan(payload))
          .ok();
    };
    const auto decode = [&] {
      return codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok();
    };
    bool ok = encode(0) && decode();
    const int64_t before = CountedAllocations();
    for (int64_t sequence = 1; sequence < 5; ++sequence) {
      ok &= encode(sequence);
      ok &= decode();
    }
    EXPECT_EQ(CountedAllocations(), before) << name;
    EXPECT_TRUE(ok) << name;
  }
}

}  // namespace
}  // namespace runnel::allocation_test
