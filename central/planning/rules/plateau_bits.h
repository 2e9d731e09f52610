#pragma once

// Rule "plateau" (--gradient-bits plateau:BITS[:BARRIERS]): one bit less whenever the training loss
// has stopped falling. A step of constant bits never comes to rest (NITI): once the loss is on a
// plateau the steps are too large for it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/planning/rules/training_rule.h"
#include "central/records/loss_since.h"
#include "proto/base/training/training.h"

namespace runnel {

struct PlateauBitsOptions {
  GradientBits first;        // before any change
  int64_t barriers = 5;      // in a row without a fall
  double least_fall = 0.01;  // share of the best loss that counts as a fall
  int32_t lowest = -2;       // no step is smaller
};

class PlateauBits final : public TrainingRule {
 public:
  explicit PlateauBits(const PlateauBitsOptions& options)
      : options_(options), progress_{.bits = options.first} {}

  // Looks at the mean training loss since the barrier before. Lowers the bits, of convolutions and
  // linear layers alike, after so many barriers in a row without a fall.
  std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override;
  std::string State() const override;
  absl::Status Restore(absl::string_view state) override;

 private:
  struct Progress {
    GradientBits bits;
    std::optional<double> best_loss = {};
    int64_t without_fall = 0;  // barriers in a row
  };

  std::optional<ChangeTraining> Look(double loss, int64_t step);

  PlateauBitsOptions options_;
  Generation generation_;  // generation of the plan whose sums loss_ has seen
  LossSince loss_;
  Progress progress_;
};

// The row's: value is BITS or CONV/LINEAR, arguments are BARRIERS or empty.
absl::StatusOr<std::unique_ptr<TrainingRule>> MakePlateauBits(absl::string_view value,
                                                              absl::string_view arguments);

}  // namespace runnel
