#pragma once

// Rule "losses" (--barrier-every auto): barriers as far apart as loses least. A barrier costs the
// time in which the pipeline drains and fills; a lost worker costs the steps since the last one,
// which are trained again. With a barrier that takes C seconds and a loss every M seconds the sum is
// least at sqrt(2 C M) seconds (Young, "A first order approximation to the optimum checkpoint
// interval", 1974). Both are measured on the run itself.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/planning/rules/training_rule.h"

namespace runnel {

inline constexpr absl::string_view kLossesRule = "losses";

class LossInterval final : public TrainingRule {
 public:
  // Before a worker was lost, one an hour is reckoned with.
  static constexpr double kFirstLossSeconds = 3600;
  static constexpr int64_t kLeastSteps = 10;
  // A change must be worth a line in the log: by this factor, either way.
  static constexpr double kLeastFactor = 1.5;

  explicit LossInterval(int64_t every) : every_(every) {}

  // So many decisions are left to other rules of a run's changes (kMaxTrainingChanges).
  static constexpr size_t kMostChanges = 1024;

  std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override;
  std::string State() const override;
  absl::Status Restore(absl::string_view state) override;

 private:
  int64_t every_;
  // Of processes that the run had before this one, and of this one up to the last barrier.
  double before_seconds_ = 0, seconds_ = 0;
  int64_t before_losses_ = 0, losses_ = 0;
  bool has_looked_ = false;
};

// The row's: value is the first interval; there are no arguments.
absl::StatusOr<std::unique_ptr<TrainingRule>> MakeLossInterval(absl::string_view value,
                                                               absl::string_view arguments);

}  // namespace runnel
