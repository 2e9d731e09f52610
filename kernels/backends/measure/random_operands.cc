#include "kernels/backends/measure/random_operands.h"

#include <cstring>

#include "proto/base/random.h"

namespace runnel {

void FillRandomly(const Buffer& buffer, std::byte* data) {
  const int64_t count = buffer.shape.elements();
  const CounterRandom random(1, RandomPurpose::kTest, static_cast<uint64_t>(count), 3);
  const auto fill = [&](auto* values, auto draw) {
    for (int64_t i = 0; i < count; ++i)
      values[i] = draw(random.Bits(static_cast<uint64_t>(i % 997)));
  };
  constexpr int kMost = 1 << 20;
  if (buffer.dtype == DType::kFloat32) {
    fill(reinterpret_cast<float*>(data),
         [](uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24F - 0.5F; });
  } else if (buffer.dtype == DType::kFloat16 || buffer.dtype == DType::kBFloat16) {
    // Codes of [0.125, 1), and of minus these.
    const bool is_f16 = buffer.dtype == DType::kFloat16;
    const uint32_t least = is_f16 ? 0x3000 : 0x3E00, span = is_f16 ? 0xC00 : 0x180;
    fill(reinterpret_cast<uint16_t*>(data), [least, span](uint32_t bits) {
      return static_cast<uint16_t>((bits >> 16 & 0x8000) | (least + bits % span));
    });
  } else if (buffer.scaled && buffer.dtype == DType::kInt8) {
    fill(reinterpret_cast<int8_t*>(data),
         [](uint32_t bits) { return static_cast<int8_t>(static_cast<int>(bits % 255) - 127); });
  } else if (buffer.scaled && buffer.dtype == DType::kInt32) {
    fill(reinterpret_cast<int32_t*>(data),
         [](uint32_t bits) { return static_cast<int32_t>(bits % (2 * kMost)) - kMost; });
  } else if (buffer.scaled && buffer.dtype == DType::kInt64) {
    fill(reinterpret_cast<int64_t*>(data),
         [](uint32_t bits) { return static_cast<int64_t>(bits % (2 * kMost)) - kMost; });
  } else {
    std::memset(data, 0, static_cast<size_t>(count) * SizeOf(buffer.dtype));
  }
  if (!buffer.scaled) return;
  ScaleTail& tail = TailOf(data, buffer.dtype, buffer.shape);
  tail = ScaleTail();
  if (buffer.dtype != DType::kInt8) tail.max_abs = kMost;
}

}  // namespace runnel
