#pragma once

// What the gates of a stage choose: counted for people, and, where there is a target of cost
// (proto/base/training/dials/cost_target.h), added to the cost that comes with the boundary tensor
// and goes on with the next one. Where the loss is, the cost of the whole micro-batch says the sign
// of its price, which goes back beside the gradients.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ir/work_tally.h"
#include "proto/base/figures/telemetry.h"
#include "proto/base/model/number_format.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/precision/gate_cost.h"

namespace runnel {

// The compute lane owns it; Fill from any thread.
class GateCosts final : public ChoiceTally {
 public:
  // Of layers first_layer to last_layer of a model with gates. `numbers` are those of the run.
  // InvalidArgument: the model or the target do not fit.
  static absl::StatusOr<std::unique_ptr<GateCosts>> Create(const ModelSpec& model, int first_layer,
                                                           int last_layer,
                                                           const TrainingSettings& training,
                                                           const NumberFormat& numbers);

  // Before a forward, whose boundary tensor `input` of this shape is; that of the first layer is
  // none. counts: the micro-batch is trained, not tried.
  void Begin(absl::Span<const std::byte> input, const Shape& shape, bool counts);
  void AddChoice(const Instruction& gate, absl::Span<const int64_t> samples) override;
  // Behind it: the cost so far, into the boundary tensor that leaves.
  void WriteCost(absl::Span<std::byte> output, const Shape& shape) const;
  // Of the micro-batch that has just met its loss; 1 without a target.
  int32_t Sign(const std::vector<TrainingChange>& changes, int64_t step) const;

  // Beside the gradient that came; 1 without a target.
  int32_t ReadSign(absl::Span<const std::byte> gradient, const Shape& shape) const;
  void WriteSign(int32_t sign, absl::Span<std::byte> gradient, const Shape& shape) const;

  void Fill(Telemetry& telemetry) const;

 private:
  // Samples of a layer's gate by option.
  struct Counted {
    int layer = 0;
    std::vector<std::atomic<int64_t>> samples;
  };

  GateCosts(GateCost cost, CostTargetSetting target, NumberFormat numbers, bool has_input)
      : cost_(std::move(cost)),
        target_(std::move(target)),
        numbers_(numbers),
        has_input_(has_input) {}
  bool has_target() const { return !target_.percents.empty(); }
  // Where the row's value lies; null: the tensor has none.
  std::byte* At(const SideValue& row, Direction direction, absl::Span<std::byte> tensor,
                const Shape& shape) const;

  const GateCost cost_;
  const CostTargetSetting target_;
  const NumberFormat numbers_;
  const bool has_input_;  // a boundary tensor enters
  std::vector<Counted> counted_;
  bool counts_ = false;
  float percent_ = 0;  // of the micro-batch's gates so far: of a float, whatever the cut
};

}  // namespace runnel
