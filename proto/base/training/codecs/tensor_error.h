#pragma once

// What a codec loses of a tensor, as the planner counts it; over several epochs the mean of each.

namespace runnel {

// Mean squared errors, over the mean square of the tensor.
struct TensorError {
  // Of a codec that takes each tensor by itself: no sign in common, so that sums of it average out.
  double apart = 0;
  // Of one that follows the tensors of before (CodecRow::remembers): what it clips, or leaves for
  // later, is alike from one place to the next.
  double alike = 0;
  double root = 0;  // square root of the sum of both

  bool any() const { return apart > 0 || alike > 0; }
  friend bool operator==(const TensorError&, const TensorError&) = default;
};

}  // namespace runnel
