#pragma once

// Packed forms of weights that stand still (StepContext::weights), so that an evaluation packs each
// weight once.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/functional/function_ref.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/program.h"

namespace runnel::cpu {

// Of one value of StepContext::weights. One compute lane.
class KeptWeights {
 public:
  // `count` floats that `make` filled when the weight was first asked for. Null: it is no parameter
  // or statistic, there is no memory, or the weight was kept in a form of another size.
  float* Of(const Buffer& weight, int64_t count, absl::FunctionRef<void(float*)> make);
  // Of memory that is kept.
  int64_t bytes() const { return bytes_; }

 private:
  struct Form {
    int64_t count = 0;
    std::unique_ptr<Memory> memory;
  };
  std::map<std::pair<Storage, int64_t>, Form> by_place_;
  int64_t bytes_ = 0;
};

// Keeps weights for executables of all batch sizes: those of one name at a time. Any thread.
class WeightKeeper {
 public:
  // Those of `weights`, for one run; null for 0. What was kept under another name is freed, at the
  // end of the runs that use it.
  std::shared_ptr<KeptWeights> Hold(int64_t weights);
  // An executable that ran with this name is gone.
  void Drop(int64_t weights);

 private:
  std::mutex mutex_;
  int64_t weights_ = 0;
  std::shared_ptr<KeptWeights> kept_;
};

}  // namespace runnel::cpu
