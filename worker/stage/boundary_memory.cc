#include "worker/stage/boundary_memory.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int kNoMantissa = 0x80;  // -128: mantissas are symmetric

size_t ElementBytes(DType type, const Shape& shape) {
  return static_cast<size_t>(shape.elements()) * SizeOf(type);
}

absl::Status CheckScaled(DType type, const Shape& shape, absl::Span<const std::byte> tensor) {
  const ScaleTail& tail = TailOf(tensor.data(), type, shape);
  RUNNEL_RETURN_IF_ERROR(kScaleExponent.Check(absl::MakeConstSpan(
      reinterpret_cast<const std::byte*>(&tail.exponent), sizeof(tail.exponent))));
  if (type != DType::kInt8 ||
      std::memchr(tensor.data(), kNoMantissa, ElementBytes(type, shape)) == nullptr)
    return absl::OkStatus();
  return absl::InvalidArgumentError("an element is -128, which no tensor of int8 has");
}

}  // namespace

void PrepareBoundary(const NumberFormat& numbers, Direction direction, const Shape& shape,
                     absl::Span<std::byte> tensor) {
  const DType type = numbers.boundary(direction);
  size_t end = ElementBytes(type, shape);
  const auto zero_until = [&](size_t next) {
    if (next > end) std::memset(tensor.data() + end, 0, next - end);
  };
  if (IsScaled(type)) {
    zero_until(static_cast<size_t>(ValueBytes(type, shape)));
    end = static_cast<size_t>(ValueBytes(type, shape));
  }
  for (const SidePlace& place : SidePlaces(numbers, shape, direction)) {
    zero_until(place.memory_offset);
    place.value->FillNeutral(tensor.subspan(place.memory_offset, place.bytes));
    end = place.memory_offset + place.bytes;
  }
}

absl::Status CheckBoundary(const NumberFormat& numbers, Direction direction, const Shape& shape,
                           absl::Span<const std::byte> tensor) {
  const int64_t needed = BoundaryBytes(numbers, shape, direction);
  if (static_cast<int64_t>(tensor.size()) < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", tensor.size(), " bytes, needs ", needed));
  }
  const DType type = numbers.boundary(direction);
  if (IsScaled(type)) RUNNEL_RETURN_IF_ERROR(CheckScaled(type, shape, tensor));
  for (const SidePlace& place : SidePlaces(numbers, shape, direction)) {
    RUNNEL_RETURN_IF_ERROR(place.value->Check(tensor.subspan(place.memory_offset, place.bytes)));
  }
  return absl::OkStatus();
}

}  // namespace runnel
