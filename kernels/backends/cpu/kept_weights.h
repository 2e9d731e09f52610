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
  // `count` floats that `make` filled when the weight was first asked for; a weight has one form.
  // Null: it is no parameter or statistic, or there is no memory.
  float* Of(const Buffer& weight, int64_t count, absl::FunctionRef<void(float*)> make);

 private:
  std::map<std::pair<Storage, int64_t>, std::unique_ptr<Memory>> by_place_;
};

// Shares kept weights among executables of other batch sizes. Any thread.
class WeightKeeper {
 public:
  // Lets `held` be those of `weights`; none for 0.
  void Hold(int64_t weights, std::shared_ptr<KeptWeights>& held);

 private:
  std::mutex mutex_;
  std::map<int64_t, std::weak_ptr<KeptWeights>> by_weights_;
};

}  // namespace runnel::cpu
