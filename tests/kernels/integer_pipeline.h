#pragma once

// A model of an integer recipe as a chain of stages in one process, with memory of their own, whose
// boundary tensors, gradients and weights a test can read. One thread (the backend may have more).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/compiler.h"
#include "tests/kernels/stage_harness.h"

namespace runnel {

// Element i of stream `seed` of the golden data (tests/golden: splitmix64, z_i mod 255 - 127).
uint64_t SplitMix64(uint64_t seed, uint64_t i);
std::vector<int8_t> GoldenMantissas(uint64_t seed, int64_t count);

// Mantissas row-major, as the model says, and their exponent.
struct Scaled {
  std::vector<int8_t> mantissas;
  int32_t exponent = 0;

  friend bool operator==(const Scaled&, const Scaled&) = default;
};

struct IntegerStage {
  std::unique_ptr<AlignedBytes>& memory_of(Storage storage) {
    return memory[static_cast<int>(storage)];
  }

  Program program;
  std::vector<std::unique_ptr<AlignedBytes>> memory;  // by Storage
  Bindings bindings;                                  // kNewParameters is kParameters
  std::unique_ptr<Executable> executable;
};

class IntegerPipeline {
 public:
  // Stages start at the layers `cuts` (0 is implied). All weights are zero at first. alone: one
  // micro-batch at a time, which steps in its backward.
  static absl::StatusOr<IntegerPipeline> Make(const ModelSpec& model, std::vector<int> cuts,
                                              int64_t batch, Backend* backend, const Recipe& recipe,
                                              bool accumulates = false,
                                              const RescaleRule& rescale = {},
                                              const BatchSplitRule& split = {}, bool alone = false);

  // Weight `index`, counted over the model's weights in order.
  void SetWeight(size_t index, const Scaled& weight);
  Scaled Weight(size_t index);
  // The wide gradient of that weight, row-major as the model says, and its tail.
  std::vector<int64_t> Gradient(size_t index, ScaleTail* tail = nullptr);
  size_t weight_count() const { return weights_.size(); }

  // Forward and backward of one micro-batch; x is the model's FP32 input.
  absl::Status ForwardBackward(const float* x, const int32_t* labels, const StepContext& context);
  absl::Status Update(const StepContext& context);

  Scaled Output(size_t stage);         // of the last forward
  Scaled InputGradient(size_t stage);  // stage >= 1
  double loss() const;

  std::vector<IntegerStage> stages;

 private:
  struct WeightPlace {
    size_t stage = 0;
    StateTensor tensor;
  };
  std::vector<WeightPlace> weights_;
};

// Every weight from streams `first_seed`, first_seed + 1, ... of the golden data, times 2^-9.
void SetGoldenWeights(IntegerPipeline& net, uint64_t first_seed);

// Values of a stream of the golden data, times 2^exponent: exact on every machine, which draws
// through the mathematical library are not.
std::vector<float> GoldenValues(uint64_t seed, int64_t count, int exponent);

// A step of micro-batches `sequence`, ..., whose number it moves on, with labels of stream 5.
absl::Status TrainStep(IntegerPipeline& net, int micro_batches, int64_t batch, int classes,
                       const std::function<std::vector<float>(int64_t sequence)>& samples,
                       StepContext& context, int64_t& sequence);

}  // namespace runnel
