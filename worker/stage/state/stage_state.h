#pragma once

// What a stage trains, in its backend's memory: the weights in the versions of the stash, the
// optimizer's slots, gradients, statistics, and the average of the weights.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/compiler.h"
#include "worker/stage/compiled_stage.h"
#include "worker/stage/state/mapped_state.h"
#include "worker/stage/state/stage_memory.h"
#include "worker/stage/state/stash.h"

namespace runnel {

// Not thread-safe. All that read or write tensors: errors as Memory::Map.
class StageState {
 public:
  // slots: of the optimizer and, as the last, the average. `programs` and `memory` outlive it, and
  // the layout of `programs` may become another one of the same weights (Exchange). Errors as
  // StageMemory::Allocate.
  static absl::StatusOr<std::unique_ptr<StageState>> Create(const CompiledStage& programs,
                                                            size_t slots, StageMemory& memory);

  Stash& stash() { return *stash_; }
  const Stash& stash() const { return *stash_; }

  // The newest weights with slots and statistics, as long as nothing runs.
  absl::StatusOr<MappedState> Read() const;
  absl::StatusOr<MappedState> Change();
  // Storage of a run, but for what comes and goes with the micro-batch.
  Bindings Bind(const Memory& weights, const Memory& scratch) const;

  // Where the slots lead from the newest weights at this distance (staleness.h), into `to`.
  absl::Status LookAhead(const OptimizerStep& step, const StepContext& context, double distance,
                         Memory& to) const;
  // The mean of the newest `count` versions becomes the newest. If some are missing, as after a
  // barrier, nothing happens.
  absl::Status AverageVersions(int64_t count);
  // A step of the average (weight_average.h) to the newest weights.
  absl::Status MoveAverage(float share);
  // The average in place of the newest weights: the same memory until the state changes.
  absl::StatusOr<Memory*> Averages();

  // Sums of squares of gradients, by layer from `first` on.
  absl::StatusOr<std::vector<double>> GradientSquares(int first, int layers) const;
  // Gradients of floats, one tensor after the other.
  absl::Status ReadGradients(std::vector<float>& gradients) const;

  // Dry runs: other memory for gradients, of the layout that `programs` has from now on; and
  // statistics to put back.
  void Exchange(std::unique_ptr<Memory>& gradients) { std::swap(gradients_, gradients); }
  absl::StatusOr<std::vector<std::byte>> ReadStatistics() const;
  absl::Status WriteStatistics(const std::vector<std::byte>& statistics);

 private:
  StageState(const CompiledStage& programs, size_t slots, StageMemory& memory)
      : programs_(programs), slot_count_(slots), memory_(memory) {}
  const StateLayout& layout() const { return programs_.layout(); }

  const CompiledStage& programs_;
  const size_t slot_count_;
  StageMemory& memory_;
  std::unique_ptr<Stash> stash_;
  std::unique_ptr<Memory> slots_;
  std::unique_ptr<Memory> gradients_;
  std::unique_ptr<Memory> statistics_;
  std::unique_ptr<Memory> averages_;  // null until somebody asks
  bool are_averages_stale_ = true;    // a step was taken, or a state came
};

}  // namespace runnel
