#pragma once

// Fixed points of whole tensors that backends of the host share (kernels/ir/arithmetic/fixed_width.h,
// fixed_point.h), and compensations. All values row-major; x and y may be the same memory. Any
// thread.

#include <optional>

#include "kernels/ir/arithmetic/fixed_point.h"
#include "kernels/ir/program.h"
#include "kernels/ir/step_context.h"

namespace runnel::host {

// The grid of an adapted width; none: values stay as they are. read: a WidthState that stays; kept:
// one that moves; either or both may be null.
std::optional<StepGrid> AdaptedSteps(const float* x, int64_t count, const float* read, float* kept);
// R of a tensor with this largest magnitude; 0: nothing can be scaled by it, values stay.
double PowerOf(float largest);
// Of kFixedPoint.
StepGrid StepsOf(const GridRule& grid);

// What is behind an operator, each of `size` elements.
struct Compensation {
  const float* gain = nullptr;
  const float* compensation = nullptr;
  const float* offset = nullptr;
  int64_t size = 0;
};
void Compensate(const Compensation& behind, const float* x, int64_t count, float* y);
struct CompensationGradients {
  float* gain = nullptr;
  float* compensation = nullptr;
  float* offset = nullptr;
};
// `adds`: to what is there.
void CompensationGradient(const Compensation& behind, const StepContext& context, const float* dy,
                          int64_t count, bool adds, const CompensationGradients& gradients);

// slots: as many as the optimizer has, and one more of an average.
void FixedUpdate(const Instruction& instruction, const StepContext& context, const float* weights,
                 const float* gradients, float* const* slots, int64_t count, float* updated);

}  // namespace runnel::host
