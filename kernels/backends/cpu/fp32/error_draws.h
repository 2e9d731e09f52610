#pragma once

// Draws for the stochastic rounding of an instruction's output, sample by sample.

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/backends/cpu/call.h"

namespace runnel::fp32 {

// body(worker, at, size, draw): the sample that begins at element `at`; draw[i] are the 20 upper bits of the
// word that kErrorRounding has for the place of element at + i in the logical (N, C, spatial) order. Samples may come
// beside one another, no two at a time with the same worker.
using SampleDrawsFn =
    absl::FunctionRef<void(int worker, int64_t at, int64_t size, const uint32_t* draw)>;
void OverSampleDraws(const cpu::Call& call, SampleDrawsFn body);
// The same with the words of kRounding and a stream (op_traits.inc, kSymmetric codes).
void OverRoundingDraws(const cpu::Call& call, int stream, SampleDrawsFn body);

}  // namespace runnel::fp32
