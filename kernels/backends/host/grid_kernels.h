#pragma once

// Grids of whole tensors that backends of the host share (kernels/ir/arithmetic/symmetric_grid.h,
// multi_level.h, float_grid.h). All values row-major; x and y may be the same memory. Any thread.

#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"

namespace runnel::host {

void SymmetricWeight(const Instruction& instruction, const StepContext& context, const float* x,
                     int64_t count, float* y);
// kept: (low, high), or null.
void SymmetricActivation(const Instruction& instruction, const StepContext& context, const float* x,
                         int64_t count, float* kept, float* y);
void SymmetricActivationEval(const float* x, int64_t count, const float* kept, float* y);
void SymmetricError(const float* dy, int64_t count, float share, float* quantized);
// Gives the deviation.
float ClippedError(const Instruction& instruction, const StepContext& context, const float* dy,
                   int64_t count, float* quantized);
void CounterDeviation(const float* dv, int64_t count, float deviation, bool adds, float* dw);

// Elements beside one another that share a scale, of a kMultiLevel code.
int64_t GroupSizeOf(const Instruction& instruction, const Shape& shape);
// A tensor of zeros, or with a value that is not finite, stays as it is.
void PutOnLevels(const Instruction& instruction, const StepContext& context, const Shape& shape,
                 const float* x, float* y);

void PutOnSmallFloats(const GridRule& grid, const float* x, int64_t count, float* y);
// By the draws of kRoundedUpdate, in place.
void RoundByDraws(const Instruction& instruction, const StepContext& context, float* values,
                  int64_t count, int slot);

}  // namespace runnel::host
