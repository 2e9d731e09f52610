#include "proto/base/model/rescale.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

constexpr int32_t kMostCount = 1 << 30;
constexpr int32_t kMostShift = 24;
constexpr int32_t kBitsOffset = 100;
// Micro-batches that are measured after the gradient bits changed.
constexpr int32_t kShortWarmUp = 20;
// Largest number of a thousand sums that may saturate. One that is twice too large is too much.
constexpr int64_t kMostSaturatedOfThousand = 1;
constexpr int64_t kMostMagnitude = 255;

struct ModeRow {
  absl::string_view name;
  RescaleMode mode;
  size_t numbers;  // numbers that may stand behind the colon
};
constexpr ModeRow kModes[] = {
    {"dynamic", RescaleMode::kDynamic, 0},
    {"speculate", RescaleMode::kSpeculate, 0},
    {"adaptive", RescaleMode::kAdaptive, 2},
    {"static", RescaleMode::kStatic, 1},
};

absl::Status NotARule() {
  return absl::InvalidArgumentError(
      absl::StrCat("must be dynamic, speculate, adaptive[:WARM_UP[,PERIOD]] or static[:WARM_UP], "
                   "WARM_UP in 0..",
                   kMaxWarmUp, ", PERIOD in 1..", kMaxRescalePeriod));
}

bool ParseNumbers(absl::string_view text, const ModeRow& row, RescaleRule* rule) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(text, ',');
  if (numbers.size() > row.numbers) return false;
  int32_t* const members[] = {&rule->warm_up, &rule->most_period};
  const int32_t most[] = {kMaxWarmUp, kMaxRescalePeriod};
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!absl::SimpleAtoi(numbers[i], members[i])) return false;
    if (*members[i] < static_cast<int32_t>(i) || *members[i] > most[i]) return false;
  }
  return true;
}

void CountUp(int32_t& count) { count = std::min(count + 1, kMostCount); }

// The period after a measurement, by the changes between those of the ring.
int32_t PeriodOf(const RescaleRule& rule, const KeptScale& scale) {
  const int32_t count = std::min<int32_t>(scale.measured, KeptScale::kRing);
  const auto seen = [&](int32_t i) {  // 0: the oldest
    return scale.ring[(scale.measured - count + i) % KeptScale::kRing];
  };
  int32_t changes = 0;
  for (int32_t i = 1; i < count; ++i) changes += seen(i).shift != seen(i - 1).shift ? 1 : 0;
  const int32_t period = std::max(1, scale.period);
  if (changes == 0) return std::min(2 * period, rule.most_period);
  const int32_t interval = (seen(count - 1).step - seen(0).step) / changes;
  return std::clamp(interval / 2, 1, rule.most_period);
}

}  // namespace

absl::StatusOr<RescaleRule> ParseRescale(absl::string_view text) {
  const size_t colon = text.find(':');
  const absl::string_view name = text.substr(0, colon);
  for (const ModeRow& row : kModes) {
    if (row.name != name) continue;
    RescaleRule rule = {.mode = row.mode};
    const bool fits = colon == absl::string_view::npos ||
                      (row.numbers > 0 && ParseNumbers(text.substr(colon + 1), row, &rule));
    if (!fits) return NotARule();
    return rule;
  }
  return NotARule();
}

bool IsValid(const KeptScale& scale) {
  const auto counts = {scale.step, scale.measured, scale.forced};
  const bool counted = std::all_of(counts.begin(), counts.end(),
                                   [](int32_t n) { return n >= 0 && n <= kMostCount; });
  const bool seen = std::all_of(std::begin(scale.ring), std::end(scale.ring), [](const auto& one) {
    return one.step >= 0 && one.step <= kMostCount && one.shift >= 0 && one.shift <= kMostShift;
  });
  return counted && seen && scale.warm_until >= 0 && scale.warm_until <= kMostCount + kMaxWarmUp &&
         scale.shift >= 0 && scale.shift <= kMostShift && scale.period >= 0 &&
         scale.period <= kMaxRescalePeriod && scale.wait >= 0 && scale.wait <= kMaxRescalePeriod &&
         scale.bits_mark >= 0 && scale.bits_mark <= 2 * kBitsOffset;
}

void BeginProduct(const RescaleRule& rule, int32_t gradient_bits, KeptScale& scale) {
  const int32_t mark = gradient_bits + kBitsOffset;
  if (scale.bits_mark == 0) {
    scale.warm_until = std::max(1, rule.warm_up);
  } else if (scale.bits_mark != mark && rule.mode == RescaleMode::kAdaptive) {
    scale.warm_until =
        std::max(scale.warm_until, scale.step + std::min(rule.warm_up, kShortWarmUp));
  }
  scale.bits_mark = mark;
}

bool MeasuresScale(const RescaleRule& rule, const KeptScale& scale) {
  if (scale.step < scale.warm_until) return true;
  return rule.mode == RescaleMode::kAdaptive && scale.wait == 0;
}

void RecordMeasured(const RescaleRule& rule, int32_t shift, KeptScale& scale) {
  // A shift that goes back and forth by one keeps the larger one: it costs a bit now and then, the
  // smaller one would saturate.
  const bool goes_on = scale.measured > 0 && (shift == scale.shift || shift + 1 == scale.shift);
  if (!goes_on) scale.shift = shift;
  scale.ring[scale.measured % KeptScale::kRing] = {scale.step, scale.shift};
  CountUp(scale.measured);
  CountUp(scale.step);
  scale.period = scale.step < scale.warm_until ? 1 : PeriodOf(rule, scale);
  scale.wait = scale.period - 1;
}

void RecordKept(const RescaleRule& rule, const KeptSums& sums, KeptScale& scale) {
  CountUp(scale.step);
  const bool saturates = sums.saturated * 1000 > sums.elements * kMostSaturatedOfThousand ||
                         sums.max_abs >> scale.shift > kMostMagnitude;
  if (saturates && rule.mode == RescaleMode::kAdaptive) {
    CountUp(scale.forced);
    scale.period = std::max(1, scale.period / 2);
    scale.wait = 0;
    return;
  }
  scale.wait = std::max(0, scale.wait - 1);
}

}  // namespace runnel
