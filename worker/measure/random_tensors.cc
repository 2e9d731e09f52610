#include "worker/measure/random_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "proto/base/model/number_format.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

// Random weights repeat after this many elements: to draw millions takes longer than to measure.
constexpr uint64_t kDistinctWeights = 4096;
// Boundary tensors repeat too. A prime, so that the samples of a batch differ.
constexpr int64_t kDistinctValues = 8191;

// Sets what follows the first kDistinctValues.
template <typename Value>
void Repeat(Value* values, int64_t count) {
  for (int64_t i = kDistinctValues; i < count; i += kDistinctValues)
    std::copy_n(values, std::min(kDistinctValues, count - i), values + i);
}

std::byte RandomMantissa(const CounterRandom& random, uint64_t element) {
  return static_cast<std::byte>(static_cast<int>(random.Below(element, 255)) - 127);
}

}  // namespace

Payload RandomTensor(BufferPool& pool, int64_t elements, uint64_t stream) {
  Payload payload = pool.Allocate(static_cast<size_t>(elements) * sizeof(float));
  float* values = reinterpret_cast<float*>(payload.mutable_bytes().data());
  const CounterRandom random(1, RandomPurpose::kTest, stream, 0);
  for (int64_t i = 0; i < std::min(elements, kDistinctValues); ++i)
    values[i] = random.Uniform(static_cast<uint64_t>(i)) - 0.5f;
  Repeat(values, elements);
  return payload;
}

Payload RandomLabels(BufferPool& pool, int64_t samples, int64_t classes, uint64_t micro_batch) {
  Payload payload = pool.Allocate(static_cast<size_t>(samples) * sizeof(int32_t));
  auto* labels = reinterpret_cast<int32_t*>(payload.mutable_bytes().data());
  const CounterRandom random(1, RandomPurpose::kTest, micro_batch, 2);
  for (int64_t i = 0; i < samples; ++i) {
    labels[i] = static_cast<int32_t>(
        random.Below(static_cast<uint64_t>(i), static_cast<uint32_t>(classes)));
  }
  return payload;
}

Payload RandomBoundary(BufferPool& pool, const NumberFormat& format, Direction direction,
                       const Shape& shape, uint64_t stream) {
  const DType type = format.boundary(direction);
  const std::vector<SidePlace> beside = SidePlaces(format, shape, direction);
  Payload floats;
  if (IsFloat(type)) floats = RandomTensor(pool, shape.elements(), stream);
  if (type == DType::kFloat32 && beside.empty()) return floats;
  Payload payload = pool.Allocate(static_cast<size_t>(BoundaryBytes(format, shape, direction)));
  const absl::Span<std::byte> bytes = payload.mutable_bytes();
  for (const SidePlace& place : beside)
    place.value->FillNeutral(bytes.subspan(place.memory_offset, place.bytes));
  if (IsFloat(type)) {
    TypeOf(type).from_float({reinterpret_cast<const float*>(floats.bytes().data()),
                             static_cast<size_t>(shape.elements())},
                            bytes.first(static_cast<size_t>(ValueBytes(type, shape))));
    return payload;
  }
  std::fill(bytes.begin() + shape.elements(), bytes.begin() + ValueBytes(type, shape),
            std::byte{0});
  const CounterRandom random(1, RandomPurpose::kTest, stream, 0);
  for (int64_t i = 0; i < std::min(shape.elements(), kDistinctValues); ++i)
    bytes[i] = RandomMantissa(random, static_cast<uint64_t>(i));
  Repeat(bytes.data(), shape.elements());
  TailOf(bytes.data(), type, shape).exponent = -7;
  return payload;
}

void FillWeights(TensorData& tensor, uint64_t stream) {
  const CounterRandom random(1, RandomPurpose::kTest, stream, 1);
  const auto elements = static_cast<uint64_t>(tensor.shape.elements());
  if (IsScaled(tensor.dtype)) {
    for (uint64_t i = 0; i < elements; ++i) {
      tensor.bytes[i] = i < kDistinctWeights ? static_cast<char>(RandomMantissa(random, i))
                                             : tensor.bytes[i - kDistinctWeights];
    }
    return;
  }
  if (tensor.dtype != DType::kFloat32) return;
  const bool weight = absl::EndsWith(tensor.name, "weight");
  if (!weight && !absl::EndsWith(tensor.name, "scale")) return;
  const auto fan_in = static_cast<float>(tensor.shape.elements() / tensor.shape[0]);
  float* values = reinterpret_cast<float*>(tensor.bytes.data());
  for (uint64_t i = 0; i < elements; ++i) {
    if (i >= kDistinctWeights) {
      values[i] = values[i - kDistinctWeights];
    } else {
      values[i] = weight ? (random.Uniform(i) - 0.5f) * 4.0f / std::sqrt(fan_in) : 1.0f;
    }
  }
}

}  // namespace runnel
