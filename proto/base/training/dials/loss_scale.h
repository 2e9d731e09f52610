#pragma once

// The dial of recipes whose gradients are f16: the power of two that the loss's gradient is
// multiplied with, so that small gradients are not rounded to 0. The optimizer's step divides by
// it.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"

namespace runnel {

inline constexpr absl::string_view kLossScaleDial = "loss_scale";
// --loss-scale: a rule decides at barriers.
inline constexpr absl::string_view kDecidedLossScale = "auto";
inline constexpr int64_t kFirstLossScale = 1024;  // where a rule decides
inline constexpr int64_t kMostLossScale = int64_t{1} << 24;

// A value of the dial. InvalidArgument: it is no power of two from 1 to kMostLossScale.
absl::StatusOr<int64_t> LossScaleOfValue(absl::string_view value);
absl::Status CheckLossScaleValue(absl::string_view value);
// TrainingSettings::loss_scale: kDecidedLossScale, or a value.
absl::Status CheckLossScaleSetting(absl::string_view text);

// The change that sets this scale from `step` on.
TrainingChange ChangeOfLossScale(int64_t step, int64_t scale);

// The scale of a step: that of the last change that holds, else the settings'.
int64_t LossScaleAt(const TrainingSettings& settings, const std::vector<TrainingChange>& changes,
                    int64_t step);

}  // namespace runnel
