#include "proto/base/training/weight_average.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/setting_row.h"

namespace runnel {
namespace {

// decay, at the beginning less, step / (step + 9), so that the first weights are soon forgotten (the
// rule of TensorFlow's num_updates).
float EmaShare(const TrainingSettings& settings, int64_t step) {
  const auto steps = static_cast<double>(step);
  return static_cast<float>(std::min(settings.ema, steps / (steps + 9)));
}

Swa SwaOf(const TrainingSettings& settings) { return ParseSwa(settings.swa).value_or(Swa()); }

// The mean of equal shares (Izmailov et al., "Averaging weights leads to wider optima", arXiv
// 1803.05407, algorithm 1); the weights until it begins.
float SwaShare(const TrainingSettings& settings, int64_t step) {
  const Swa swa = SwaOf(settings);
  const int64_t since = step - swa.start;
  if (since < 0) return 0;
  if (since % swa.every != 0) return 1;
  const auto counted = static_cast<double>(since / swa.every);
  return static_cast<float>(counted / (counted + 1));
}

constexpr WeightAverage kRows[] = {
    {"ema", [](const TrainingSettings& settings) { return settings.ema > 0; }, EmaShare,
     [](TrainingSettings& settings) { settings.ema = 0; }},
    {"swa", [](const TrainingSettings& settings) { return SwaOf(settings).is_on; }, SwaShare,
     [](TrainingSettings& settings) { settings.swa = TrainingSettings().swa; }},
};

}  // namespace

absl::StatusOr<Swa> ParseSwa(absl::string_view text) {
  Swa swa;
  if (text == "off") return swa;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits('@', 1));
  swa.is_on =
      absl::SimpleAtoi(parts[0], &swa.start) && swa.start >= 0 && swa.start <= kMaxSettingCount;
  if (parts.size() > 1)
    swa.is_on &=
        absl::SimpleAtoi(parts[1], &swa.every) && swa.every >= 1 && swa.every <= kMaxSettingCount;
  if (swa.is_on) return swa;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no START[@EVERY] of whole steps, EVERY at least 1, as in 1000@100, or off"));
}

absl::Span<const WeightAverage> WeightAverages() { return kRows; }

const WeightAverage* AverageOf(const TrainingSettings& settings) {
  for (const WeightAverage& row : kRows) {
    if (row.is_on(settings)) return &row;
  }
  return nullptr;
}

void DropAverage(TrainingSettings& settings) {
  for (const WeightAverage& row : kRows) row.turn_off(settings);
}

}  // namespace runnel
