#pragma once

// The oracle of whole models: a ModelSpec run by LibTorch's functional operators and autograd, in
// double or single precision. Shares no code with the backends.

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

struct OracleOptions {
  bool float64 = false;
  bool channels_last = false;  // activations and weights
  // Dropout by the run's counter-based mask; else by LibTorch's own generator.
  bool counter_masks = true;
};

// The values of one kind of state, tensor by tensor in the order of StateLayout::tensors.
using StateValues = std::vector<std::vector<double>>;

// Tells glibc to keep freed memory: without it oneDNN's temporaries are mapped and unmapped on
// every call. For the start of a main that times LibTorch; nothing on other C libraries.
void TuneAllocatorForTorch();

class TorchOracle {
 public:
  // `layout` is PlanState of the whole model. State is copied from areas of that layout.
  TorchOracle(const ModelSpec& model, const StateLayout& layout, OracleOptions options,
              const float* parameters, const float* statistics);
  ~TorchOracle();

  // One micro-batch: gradients replace the former ones, running statistics move. x is row-major, tokens
  // as the bits of integers.
  // Returns the sum of the losses.
  double ForwardBackward(const float* x, const int32_t* labels, int64_t batch,
                         const StepContext& context);
  // One optimizer step, momentum starting at zero.
  void Update(const StepContext& context);

  StateValues Gradients() const;  // empty vectors for statistics
  StateValues State() const;      // parameters and statistics

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runnel
