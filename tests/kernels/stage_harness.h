#pragma once

// Stages with memory of their own, chained in one process: what the tests of the compiler and of
// every backend run, and the bench of training steps. Checks the contract of kernels/backends/backend.h on
// the way if asked to (Checks::kOn). One thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"
#include "proto/base/model/model_spec.h"

namespace runnel {

// 64-byte aligned bytes, zero at first.
class AlignedBytes {
 public:
  explicit AlignedBytes(int64_t bytes);
  std::byte* data() { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    std::align_val_t alignment{64};
    void operator()(std::byte* data) const { ::operator delete(data, alignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_;
};

// First values of parameters and statistics: a function of seed, layer, tensor and element alone,
// so the same wherever the model is cut. Scales and variances near 1, fan-in scaled weights.
void FillState(const StateLayout& layout, uint64_t seed, float* parameters, float* statistics);

// kOn: each part sees only the areas that it may use, Run fails with Internal if a part wrote
// where it must not, and whatever may be lost between parts is overwritten with NaN. Slow.
enum class Checks { kOff, kOn };

// kAlone: compiled with one_in_flight and steps_in_backward; run kForward, kInputGradient and
// kWeightGradient one after the other, each step with one micro-batch. kUpdate does nothing.
enum class Steps { kApart, kAlone };

// One stage of layers first..last. most_forward_bits: as CompileOptions has them, of the contexts that
// will come.
class TestStage {
 public:
  static absl::StatusOr<std::unique_ptr<TestStage>> Make(const ModelSpec& model, int first,
                                                         int last, int64_t batch, Backend* backend,
                                                         Checks checks = Checks::kOff,
                                                         Steps steps = Steps::kApart,
                                                         const char* recipe = "fp32",
                                                         int most_forward_bits = 0);

  float* data(Storage storage) { return reinterpret_cast<float*>(bindings[storage]); }
  int64_t bytes(Storage storage) const { return memory[static_cast<int>(storage)]->size(); }
  // Fills an area with float NaNs.
  void Poison(Storage storage);
  absl::Status Run(Part part, const StepContext& context);
  // The tensors of kParameters, kGradients, kSlots or kStatistics, without the padding.
  std::vector<std::vector<float>> Tensors(Storage storage);

  Checks checks = Checks::kOff;
  Steps steps = Steps::kApart;
  Program program;
  std::vector<std::unique_ptr<AlignedBytes>> memory;  // by Storage
  Bindings bindings;                                  // kNewParameters is kParameters
  std::unique_ptr<Executable> executable;

 private:
  void PoisonBefore(Part part, const StepContext& context);
  absl::Status RunChecked(Part part, const StepContext& context);
};

// The whole model as stages that start at the layers `cuts` (0 is implied).
class TestPipeline {
 public:
  static absl::StatusOr<TestPipeline> Make(const ModelSpec& model, std::vector<int> cuts,
                                           int64_t batch, Backend* backend, uint64_t seed,
                                           Checks checks = Checks::kOff,
                                           Steps steps = Steps::kApart, const char* recipe = "fp32",
                                           int most_forward_bits = 0);

  absl::Status ForwardBackward(const float* x, const int32_t* labels, const StepContext& context);
  absl::Status Forward(Part part, const float* x, const int32_t* labels,
                       const StepContext& context);
  absl::Status Update(const StepContext& context);
  // Of the last forward: sum of the losses, number of correct samples.
  double Loss() const { return Metrics()[0]; }
  double Correct() const { return Metrics()[1]; }
  // Of all stages, in the model's order.
  std::vector<std::vector<float>> Tensors(Storage storage);

  std::vector<std::unique_ptr<TestStage>> stages;
  std::vector<float> logits;  // of the last forward

 private:
  const double* Metrics() const {
    return reinterpret_cast<const double*>(stages.back()->bindings[Storage::kMetrics]);
  }
};

}  // namespace runnel
