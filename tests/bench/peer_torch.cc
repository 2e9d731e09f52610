#include "tests/bench/peer_torch.h"

#include <ATen/Parallel.h>

#include <utility>
#include <vector>

#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "proto/base/status_macros.h"
#include "tests/kernels/stage_harness.h"
#include "tests/kernels/torch_oracle.h"

namespace runnel::bench {
namespace {

class TorchTrainer : public Trainer {
 public:
  TorchTrainer(std::unique_ptr<TorchOracle> oracle, const Samples& samples)
      : oracle_(std::move(oracle)), samples_(samples) {
    context_.step_labels = samples.batch;
    context_.learning_rate = 1e-3;
    context_.momentum = 0.9;
  }

  absl::Status Step() override {
    oracle_->ForwardBackward(samples_.x.data(), samples_.labels.data(), samples_.batch, context_);
    oracle_->Update(context_);
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<TorchOracle> oracle_;
  const Samples& samples_;
  StepContext context_;
};

}  // namespace

void TuneForTorch(int threads) {
  TuneAllocatorForTorch();
  at::set_num_threads(threads);
}

absl::StatusOr<std::unique_ptr<Trainer>> MakeTorchTrainer(const ModelSpec& model,
                                                          bool channels_last,
                                                          const Samples& samples) {
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe("fp32"));
  RUNNEL_ASSIGN_OR_RETURN(
      const StateLayout layout,
      PlanState(model, 0, model.layer_count() - 1, *recipe, {.max_batch = samples.batch}));
  AlignedBytes parameters(layout.parameter_bytes), statistics(layout.statistic_bytes);
  auto* weights = reinterpret_cast<float*>(parameters.data());
  auto* running = reinterpret_cast<float*>(statistics.data());
  FillState(layout, 1, weights, running);
  return std::make_unique<TorchTrainer>(
      std::make_unique<TorchOracle>(
          model, layout, OracleOptions{.channels_last = channels_last, .counter_masks = false},
          weights, running),
      samples);
}

}  // namespace runnel::bench
