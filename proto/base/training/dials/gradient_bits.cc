#include "proto/base/training/dials/gradient_bits.h"

#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<GradientBits> GradientBitsOfValue(absl::string_view value) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<GradientBitsStep> steps, ParseGradientBits(value));
  if (steps.size() > 1)
    return absl::InvalidArgumentError("is a schedule; a change has BITS or CONV/LINEAR");
  return steps.front().bits;
}

absl::Status CheckGradientBitsValue(absl::string_view value) {
  return GradientBitsOfValue(value).status();
}

TrainingChange ChangeOfGradientBits(int64_t step, const GradientBits& bits) {
  return {step, std::string(kGradientBitsDial), GradientBitsText({{0, bits}})};
}

GradientBits GradientBitsAt(const TrainingSettings& settings,
                            const std::vector<TrainingChange>& changes, int64_t epoch,
                            int64_t step) {
  const TrainingChange* change = ChangeAt(changes, kGradientBitsDial, step);
  // Changes were checked when they were made.
  return change != nullptr ? GradientBitsOfValue(change->value).value()
                           : GradientBitsOf(settings, epoch);
}

}  // namespace runnel
