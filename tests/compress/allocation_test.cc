// A micro-batch on its way through a codec asks for no memory.

#include <atomic>
#include <cstdlib>
#include <new>

#include "compress/codec.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace runnel {
namespace {

TEST(Allocation, EncodeAndDecodeMakeNone) {
  const Shape shape = {8, 16, 7, 7};
  const std::vector<float> x = NormalTensor(shape.elements(), 3);
  std::vector<float> out(x.size());
  for (const std::string& name : CodecNames()) {
    const auto codec = MakeCodec(name).value();
    const auto encoder = codec->NewEncoder({});
    std::vector<std::byte> payload(codec->EncodedBytes(shape).value());
    const int64_t before = allocations;
    bool ok = true;
    for (int64_t sequence = 0; sequence < 4; ++sequence) {
      ok &=
          encoder
              ->Encode(ViewOf(x, shape), Sequence(sequence), sequence == 2, absl::MakeSpan(payload))
              .ok();
      ok &= codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok();
    }
    EXPECT_EQ(allocations, before) << name;
    EXPECT_TRUE(ok) << name;
  }
}

}  // namespace
}  // namespace runnel
