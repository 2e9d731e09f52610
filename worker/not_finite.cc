#include "worker/not_finite.h"

#include <algorithm>

#include "absl/strings/cord.h"

namespace runnel {
namespace {

constexpr char kPayload[] = "runnel.not_finite";

}  // namespace

absl::Status MarkNotFinite(absl::Status status, NotFinite from) {
  status.SetPayload(kPayload, absl::Cord(std::string(1, static_cast<char>(from))));
  return status;
}

NotFinite NotFiniteOf(const absl::Status& status) {
  const absl::optional<absl::Cord> from = status.GetPayload(kPayload);
  return from.has_value() ? static_cast<NotFinite>((*from)[0]) : NotFinite::kNothing;
}

bool HasNumbers(const NumberFormat& numbers, Direction direction, const Shape& shape,
                absl::Span<const std::byte> tensor) {
  if (tensor.empty()) return true;
  const DType type = numbers.boundary(direction);
  const auto elements = static_cast<size_t>(ValueBytes(type, shape));
  if (!AllFinite(type, tensor.first(std::min(tensor.size(), elements)))) return false;
  const std::vector<SidePlace> places = SidePlaces(numbers, shape, direction);
  return std::all_of(places.begin(), places.end(), [tensor](const SidePlace& place) {
    return place.value->type != DType::kFloat32 ||
           AllFinite(DType::kFloat32, tensor.subspan(place.memory_offset, place.bytes));
  });
}

}  // namespace runnel
