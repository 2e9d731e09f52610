#pragma once

// Rule "pfq" of the precision (--precision pfq:FW,.../BW,...[@EPS,ALPHA,EVERY], FracTrain): the next
// level whenever the training loss has stopped moving.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/planning/rules/loss_indicator.h"
#include "central/planning/rules/training_rule.h"
#include "proto/base/training/dials/precision.h"

namespace runnel {

class ProgressivePrecision final : public TrainingRule {
 public:
  // options.most_turns: one less than there are levels.
  ProgressivePrecision(PrecisionSetting levels, const LossIndicatorOptions& options)
      : levels_(std::move(levels)), options_(options), indicator_(options) {}

  int64_t every_steps() const override { return options_.every_steps; }
  std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override;
  std::string State() const override;
  absl::Status Restore(absl::string_view state) override;

 private:
  struct Sums {
    double loss = 0;
    int64_t samples = 0;
  };

  PrecisionSetting levels_;
  LossIndicatorOptions options_;
  Generation generation_;  // generation of the plan whose sums seen_ are
  Sums seen_;
  Sums period_;  // since the indicator looked last
  LossIndicator indicator_;
};

// The row's: arguments are the setting behind the rule's name.
absl::StatusOr<std::unique_ptr<TrainingRule>> MakeProgressivePrecision(absl::string_view value,
                                                                       absl::string_view arguments);

}  // namespace runnel
