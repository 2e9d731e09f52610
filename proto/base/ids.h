#pragma once

// Strong types: a DeviceId never compiles where a Sequence is meant.

#include <compare>
#include <cstdint>
#include <utility>

namespace runnel {

// An integer that only mixes with its own kind. Tag is an empty struct; Rep the representation.
template <typename Tag, typename Rep>
class StrongInt {
 public:
  using rep = Rep;
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Rep value) : value_(value) {}

  constexpr Rep value() const { return value_; }
  constexpr StrongInt next() const { return StrongInt(value_ + 1); }

  friend constexpr auto operator<=>(StrongInt, StrongInt) = default;

  template <typename H>
  friend H AbslHashValue(H h, StrongInt x) {
    return H::combine(std::move(h), x.value_);
  }

 private:
  Rep value_ = 0;
};

// Number of a micro-batch within the run, 0-based, never reused.
using Sequence = StrongInt<struct SequenceTag, int64_t>;
// Number of a plan; a frame of an older generation is dropped.
using Generation = StrongInt<struct GenerationTag, int32_t>;
// A worker as central knows it, in joining order. Stable for the run; stages move between devices.
using DeviceId = StrongInt<struct DeviceIdTag, int32_t>;
// An amount of bytes, on a wire or in memory.
using Bytes = StrongInt<struct BytesTag, int64_t>;

// Direction in which a tensor crosses a link.
enum class Direction : uint8_t {
  kForward,   // an activation, from stage i to stage i + 1
  kBackward,  // its gradient, from stage i + 1 to stage i
};
inline constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward};

}  // namespace runnel
