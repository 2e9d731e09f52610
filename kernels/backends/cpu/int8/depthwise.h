#pragma once

// Convolutions with one channel a group (groups == in_c == out_c), without products of matrices.

#include <cstdint>

#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/backends/cpu/int8/sums_sink.h"
#include "kernels/ir/conv_shape.h"

namespace runnel::cpu {

int64_t DepthwiseWorkspaceBytes(const ConvShape& shape, ConvPass pass, int threads);

// Forward: source = x, out int32 like dy. Input-gradient: source = dy, out like x. max_lanes:
// kMaxLanes, raised to |out|; or null.
void RunDepthwise(const Int8Context& context, const ConvShape& shape, bool input_gradient,
                  const int8_t* source, const int8_t* w, int32_t* out, uint32_t* max_lanes);
// The forward, each output given to the sink.
int64_t DepthwiseToSinkBytes(const ConvShape& shape, int threads);
void RunDepthwiseToSink(const Int8Context& context, const ConvShape& shape, const int8_t* source,
                        const int8_t* w, SumsSink& sink);
// dw or wide is null. Sums are exact in int64 for wide. adds: to what is there.
void RunDepthwiseWeightGradient(const Int8Context& context, const ConvShape& shape,
                                const int8_t* dy, const int8_t* x, int32_t* dw, int64_t* wide,
                                bool adds);

}  // namespace runnel::cpu
