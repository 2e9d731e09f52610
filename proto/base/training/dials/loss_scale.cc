#include "proto/base/training/dials/loss_scale.h"

#include <bit>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace runnel {

absl::StatusOr<int64_t> LossScaleOfValue(absl::string_view value) {
  int64_t scale = 0;
  if (absl::SimpleAtoi(value, &scale) && scale >= 1 && scale <= kMostLossScale &&
      std::has_single_bit(static_cast<uint64_t>(scale)))
    return scale;
  return absl::InvalidArgumentError(
      absl::StrCat("'", value, "' is no power of two from 1 to ", kMostLossScale));
}

absl::Status CheckLossScaleValue(absl::string_view value) {
  return LossScaleOfValue(value).status();
}

absl::Status CheckLossScaleSetting(absl::string_view text) {
  if (text == kDecidedLossScale) return absl::OkStatus();
  const absl::Status status = CheckLossScaleValue(text);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), ", nor ", kDecidedLossScale));
}

TrainingChange ChangeOfLossScale(int64_t step, int64_t scale) {
  return {step, std::string(kLossScaleDial), absl::StrCat(scale)};
}

int64_t LossScaleAt(const TrainingSettings& settings, const std::vector<TrainingChange>& changes,
                    int64_t step) {
  // Changes and settings were checked when they were made.
  if (const TrainingChange* change = ChangeAt(changes, kLossScaleDial, step))
    return LossScaleOfValue(change->value).value();
  return LossScaleOfValue(settings.loss_scale).value_or(kFirstLossScale);
}

}  // namespace runnel
