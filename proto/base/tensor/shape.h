#pragma once

// Shape of a tensor, outermost dimension first: (N, C, H, W), (N, C, L) or (N, F).

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace runnel {

class Shape {
 public:
  static constexpr int kMaxRank = 6;
  // No tensor of ours holds more elements; a larger shape is refused before anything is allocated.
  static constexpr int64_t kMaxElements = int64_t{1} << 33;

  Shape() = default;
  // For shapes that our own code wrote down. Dimensions must be positive.
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}

  // For shapes from outside: rank <= kMaxRank, each dimension >= 1, the product <= kMaxElements.
  static absl::StatusOr<Shape> Create(absl::Span<const int64_t> dims);

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t operator[](int axis) const { return dims_[axis]; }
  absl::Span<const int64_t> dims() const { return dims_; }
  // 1 for rank 0.
  int64_t elements() const;
  // This shape with a first dimension put in front.
  Shape Prepend(int64_t batch) const;
  // "64x20x24x24".
  std::string ToString() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  absl::InlinedVector<int64_t, 4> dims_;
};

}  // namespace runnel
