#pragma once

// Rule "auto" of the loss scale (--loss-scale auto, recipe fp16): halved at a barrier if more than
// 1e-4 of the gradients' values have saturated since the barrier before, doubled after 20 barriers
// in a row without one that did. A pipeline cannot take a step back, so a step with values that
// saturated counts, and the scale holds between barriers.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/planning/rules/training_rule.h"

namespace runnel {

class SaturationScale final : public TrainingRule {
 public:
  static constexpr double kMostSaturated = 1e-4;  // share of the values since the barrier before
  static constexpr int64_t kBarriers = 20;        // in a row

  explicit SaturationScale(int64_t scale) : progress_{.scale = scale} {}

  std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override;
  std::string State() const override;
  absl::Status Restore(absl::string_view state) override;

 private:
  struct Progress {
    int64_t scale = 1;
    int64_t clean = 0;  // barriers in a row without a saturated value
  };
  struct Sums {
    int64_t values = 0, saturated = 0;
  };

  Generation generation_;  // generation of the plan whose sums seen_ are
  Sums seen_;
  Progress progress_;
};

// The row's: value is the scale, there are no arguments.
absl::StatusOr<std::unique_ptr<TrainingRule>> MakeSaturationScale(absl::string_view value,
                                                                  absl::string_view arguments);

}  // namespace runnel
