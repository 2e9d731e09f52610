#pragma once

// A stage's layers as a backend runs them: a program for each micro-batch size, and the layout of
// the state that all of them work on.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/compiler.h"
#include "proto/base/tensor/payload.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

struct StageExecutorOptions;

// Does not change once it is made; the executables belong to the thread that computes.
class CompiledStage {
 public:
  struct Sized {
    Program program;
    std::unique_ptr<Executable> executable;
    // By the model (work_energy.h): of a micro-batch, and of a step.
    double pass_joules = 0, update_joules = 0;
  };

  // `backend` outlives it. keeps_gradients: as StagePrograms has it, whatever the settings say. Errors
  // as StageExecutor::Create.
  static absl::StatusOr<CompiledStage> Create(const StageExecutorOptions& options, Backend& backend,
                                              bool keeps_gradients = false);

  // InvalidArgument: there is no program for this size.
  absl::StatusOr<const Sized*> ForSamples(int64_t samples) const;
  // The last stage's samples come with labels.
  absl::Status CheckLabels(const Payload& labels, int64_t samples) const;
  // Energy of a micro-batch by the model, with its part of an optimizer step; 0: no such size.
  double ModelJoules(int64_t samples, int64_t micro_batches_a_step) const;

  // An emulator computes part of it, whose energy is not that of the processor.
  bool is_emulated() const { return is_emulated_; }

  const StateLayout& layout() const { return layout_; }
  Shape input_shape(int64_t samples) const { return input_sample_.Prepend(samples); }
  Shape output_shape(int64_t samples) const { return output_sample_.Prepend(samples); }
  bool has_loss() const { return has_loss_; }
  int64_t labels_per_sample() const { return labels_per_sample_; }
  bool steps_in_backward() const { return steps_in_backward_; }  // CompileOptions
  const std::string& numerics_class() const { return numerics_class_; }
  // What --batch-split auto found, for people; empty where nothing was measured.
  const std::string& slices_found() const { return slices_found_; }
  // Of the largest micro-batch.
  int64_t stash_bytes() const;
  int64_t scratch_bytes() const;
  // What the executables keep of the backend's memory.
  int64_t memory_bytes() const;

 private:
  absl::Status MeasureSlices(Backend& backend, Program& program);
  void CountEnergy(const Backend& backend, Sized& sized);
  static bool IsEmulated(const Backend& backend, const Sized& sized);

  StateLayout layout_;
  std::map<int64_t, Sized> by_samples_;
  Shape input_sample_;
  Shape output_sample_;
  bool has_loss_ = false;
  int64_t labels_per_sample_ = 1;
  bool steps_in_backward_ = false;
  bool is_emulated_ = false;
  std::string numerics_class_;
  std::string slices_found_;
};

// InvalidArgument, which names `what`: the payload has not these bytes.
absl::Status CheckSize(const Payload& payload, int64_t bytes, const char* what);

}  // namespace runnel
