#pragma once

// Rules "pfq" of the precision (--precision pfq:FW,.../BW,...[@EPS,ALPHA,EVERY[,LATEST]], FracTrain)
// and "pfq_cost" of the target of cost (--cost-target TARGET,...[@EPS,ALPHA,EVERY[,LATEST]]): the next
// level whenever the training loss has stopped moving, or where LATEST says so.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/planning/rules/loss_indicator.h"
#include "central/planning/rules/training_rule.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/precision.h"

namespace runnel {

// Of a dial whose values are levels from 0 on.
class ProgressiveLevels final : public TrainingRule {
 public:
  // levels: text of each for people. As many turns as there are levels behind the first.
  ProgressiveLevels(absl::string_view dial, std::vector<std::string> levels,
                    LossIndicatorOptions options)
      : dial_(dial),
        levels_(std::move(levels)),
        options_(Limited(options, levels_)),
        indicator_(options_) {}

  int64_t every_steps() const override { return options_.every_steps; }
  std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override;
  std::string State() const override;
  absl::Status Restore(absl::string_view state) override;

 private:
  struct Sums {
    double loss = 0;
    int64_t samples = 0;
  };

  static LossIndicatorOptions Limited(LossIndicatorOptions options,
                                      const std::vector<std::string>& levels) {
    options.most_turns = static_cast<int64_t>(levels.size()) - 1;
    return options;
  }

  absl::string_view dial_;
  std::vector<std::string> levels_;
  LossIndicatorOptions options_;
  Generation generation_;  // generation of the plan whose sums seen_ are
  Sums seen_;
  Sums period_;  // since the indicator looked last
  LossIndicator indicator_;
};

// The row's: arguments are the setting behind the rule's name.
absl::StatusOr<std::unique_ptr<TrainingRule>> MakeProgressivePrecision(absl::string_view value,
                                                                       absl::string_view arguments);
// Likewise; arguments are the whole setting.
absl::StatusOr<std::unique_ptr<TrainingRule>> MakeProgressiveCost(absl::string_view value,
                                                                  absl::string_view arguments);

}  // namespace runnel
