#pragma once

// The call of a kernel of backend cpu, and the table of kernels.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backends/cpu/thread_pool.h"
#include "kernels/backends/cpu/workspace.h"
#include "kernels/backends/host/call.h"

// The tables of loops, by kind of number: fp32/kernel_table.h, half/loops.h, int8/int8_kernels.h,
// integer/loops.h, codes/code_loops.h, grids/grid_loops.h.
namespace runnel::fp32 {
struct Kernels;
}
namespace runnel::half {
struct Loops;
}
namespace runnel::cpu {
struct CodeLoops;
struct GridLoops;
struct Int8Kernels;
struct IntegerLoops;
class KeptWeights;
class PreparedProducts;
}  // namespace runnel::cpu

namespace runnel::cpu {

using host::Image;
using host::ImageOf;
using host::Window;
using host::WindowOf;

struct Operand {
  std::byte* data = nullptr;
  const Buffer* buffer = nullptr;
};

// Shared by all calls of one executable.
struct Machine {
  const fp32::Kernels* fp32 = nullptr;
  const half::Loops* half = nullptr;
  const Int8Kernels* int8 = nullptr;
  const IntegerLoops* integer = nullptr;
  const CodeLoops* codes = nullptr;
  const GridLoops* grids = nullptr;
  ThreadPool* pool = nullptr;
  Workspace* workspace = nullptr;  // reset before each call

  int workers() const { return pool->threads(); }
};

// Memory of earlier calls for a product that rescales its own sums. It changes no bytes.
struct ShiftGuess {
  int32_t shift = 0;   // the last maximum's
  int32_t misses = 0;  // recent share of calls with another shift than the one before, of 256
};

// One instruction with its memory. Activations of rank >= 3 are channels-last if channels_last.
struct Call {
  const Instruction* instruction = nullptr;
  absl::Span<const Operand> inputs;
  absl::Span<const Operand> outputs;
  const StepContext* context = nullptr;
  bool channels_last = false;
  Machine machine;
  // In a fused step: this instruction's sums are there already, and its output is wanted beyond the
  // step.
  bool sums_done = false;
  bool keep_output = true;
  ShiftGuess* guess = nullptr;                 // the executable's, of this instruction
  const PreparedProducts* prepared = nullptr;  // of the program's constants; or null
  KeptWeights* kept = nullptr;                 // of StepContext::weights; or null

  const fp32::Kernels& kernels() const { return *machine.fp32; }
  template <typename T = float>
  const T* in(size_t i) const {
    return reinterpret_cast<const T*>(inputs[i].data);
  }
  template <typename T = float>
  T* out(size_t i) const {
    return reinterpret_cast<T*>(outputs[i].data);
  }
  const Shape& in_shape(size_t i) const { return inputs[i].buffer->shape; }
  const Shape& out_shape(size_t i) const { return outputs[i].buffer->shape; }
  template <typename T>
  T* Take(int64_t count) const {
    return machine.workspace->Take<T>(count);
  }
};

// Layout that a kernel demands of activations of rank >= 3.
enum class LayoutRule : uint8_t {
  kChannelsLast,
  kRowMajor,          // by the shape
  kSame,              // either, but all operands alike
  kToChannelsLast,    // inputs row-major, outputs channels-last: the kernel turns
  kFromChannelsLast,  // the reverse
};

// Several instructions that one kernel runs: `calls` stand in the program's order.
using Kernel = absl::Status (*)(absl::Span<const Call> calls);

struct KernelRow {
  OpCode code;
  LayoutRule layout;
  Kernel run;
};

// Parts of a loop for each thread: the more, the less a slow core is waited for, and the smaller
// are the pieces of work.
inline constexpr int64_t kPartsPerWorker = 4;

// Calls body(worker, begin, end) on parts of [0, count), worker < machine.workers(), no two at a
// time with the same worker. What is computed must not depend on the division.
inline void ParallelFor(const Machine& machine, int64_t count,
                        absl::FunctionRef<void(int, int64_t, int64_t)> body) {
  const int64_t workers = machine.workers();
  const int64_t parts = std::min(workers == 1 ? 1 : workers * kPartsPerWorker, count);
  machine.pool->ParallelFor(parts, [&](int worker, int64_t i) {
    body(worker, count * i / parts, count * (i + 1) / parts);
  });
}

}  // namespace runnel::cpu
