#include "kernels/models/quantize/calibration.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace runnel::inference {
namespace {

constexpr double kSmoothing = 1e-4;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

double Divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    if (q[i] == 0) return kInfinite;
    sum += p[i] * std::log(p[i] / q[i]);
  }
  return sum;
}

// The first `bins` bins, all beyond them added to the last.
std::vector<double> Clipped(const std::vector<double>& counts, int bins) {
  std::vector<double> clipped(counts.begin(), counts.begin() + bins);
  for (size_t i = bins; i < counts.size(); ++i) clipped.back() += counts[i];
  return clipped;
}

// A level is the mean over a real interval of bins; those at its ends count by their overlap.
struct Interval {
  int first_whole = 0, end_whole = 0;  // whole bins
  double left = 0, right = 0;          // shares of bins first_whole - 1 and end_whole

  Interval(double begin, double end)
      : first_whole(static_cast<int>(std::ceil(begin))),
        end_whole(static_cast<int>(std::floor(end))),
        left(first_whole - begin),
        right(end - end_whole) {}
  double Mean(const std::vector<double>& counts) const {
    double mass = 0;
    if (left > 0) mass += left * counts[first_whole - 1];
    if (right > 0) mass += right * counts[end_whole];
    for (int i = first_whole; i < end_whole; ++i) mass += counts[i];
    return mass / (end_whole - first_whole + left + right);
  }
  void Spread(double value, std::vector<double>& q) const {
    if (left > 0) q[first_whole - 1] += left * value;
    if (right > 0) q[end_whole] += right * value;
    for (int i = first_whole; i < end_whole; ++i) q[i] += value;
  }
};

double NcnnDivergence(const std::vector<double>& normalised, int bins, int levels) {
  std::vector<double> p = Clipped(normalised, bins);
  for (double& value : p) value += kSmoothing;
  std::vector<double> q(bins, kSmoothing);
  const double width = static_cast<double>(bins) / levels;
  for (int level = 0; level < levels; ++level) {
    const Interval interval(level * width, level + 1 == levels ? bins : (level + 1) * width);
    interval.Spread(interval.Mean(normalised), q);
  }
  return Divergence(p, q);
}

// Zeros become kSmoothing, which the others give; then the sum is 1. False: there is nothing.
bool SmoothAndNormalise(std::vector<double>& values) {
  const auto zeros = static_cast<double>(std::count(values.begin(), values.end(), 0.0));
  const double others = static_cast<double>(values.size()) - zeros;
  if (others == 0) return false;
  const double taken = kSmoothing * zeros / others;
  double sum = 0;
  for (double& value : values) {
    value = value == 0 ? kSmoothing : value - taken;
    sum += value;
  }
  for (double& value : values) value /= sum;
  return true;
}

double MigaczDivergence(const std::vector<double>& counts, int bins, int levels) {
  std::vector<double> p = Clipped(counts, bins);
  std::vector<double> q(bins, 0.0);
  const int width = bins / levels;
  for (int level = 0; level < levels; ++level) {
    const int begin = level * width, end = level + 1 == levels ? bins : begin + width;
    double mass = 0, taking = 0;
    for (int i = begin; i < end; ++i) {
      mass += counts[i];
      taking += p[i] != 0 ? 1 : 0;
    }
    for (int i = begin; i < end && taking > 0; ++i) q[i] = p[i] != 0 ? mass / taking : 0;
  }
  if (!SmoothAndNormalise(p) || !SmoothAndNormalise(q)) return kInfinite;
  return Divergence(p, q);
}

std::vector<double> Normalised(std::vector<double> counts) {
  double sum = 0;
  for (double count : counts) sum += count;
  for (double& count : counts) count /= sum;
  return counts;
}

double DivergenceOf(const std::vector<double>& counts, int bins, int levels, KlRule rule) {
  return rule == KlRule::kNcnn ? NcnnDivergence(counts, bins, levels)
                               : MigaczDivergence(counts, bins, levels);
}

std::vector<double> CountsFor(const Histogram& histogram, KlRule rule) {
  return rule == KlRule::kNcnn ? Normalised(histogram.counts) : histogram.counts;
}

}  // namespace

double KlDivergence(const Histogram& histogram, int bins, int levels, KlRule rule) {
  return DivergenceOf(CountsFor(histogram, rule), bins, levels, rule);
}

KlChoice ChooseKl(const Histogram& histogram, int levels, KlRule rule) {
  const std::vector<double> counts = CountsFor(histogram, rule);
  const int end = rule == KlRule::kNcnn ? kHistogramBins : kHistogramBins + 1;
  KlChoice best{levels, kInfinite, 0};
  for (int bins = levels; bins < end; ++bins) {
    const double divergence = DivergenceOf(counts, bins, levels, rule);
    if (divergence < best.divergence) best = {bins, divergence, 0};
  }
  best.threshold = (best.bins + 0.5) * histogram.absmax / kHistogramBins;
  return best;
}

absl::StatusOr<CalibrationRule> ParseCalibration(absl::string_view text) {
  using Kind = CalibrationRule::Kind;
  if (text == "kl") return CalibrationRule{Kind::kKl};
  if (text == "kl:migacz") return CalibrationRule{Kind::kKlMigacz};
  if (text == "absmax") return CalibrationRule{Kind::kAbsMax};
  CalibrationRule rule{Kind::kPercentile};
  absl::string_view share = text;
  if (absl::ConsumePrefix(&share, "percentile:") && absl::SimpleAtod(share, &rule.percentile) &&
      rule.percentile > 50 && rule.percentile <= 100) {
    return rule;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("calibration '", text,
                   "' is none of kl, kl:migacz, absmax, percentile:P (P above 50, at most 100)"));
}

void Observer::AddRange(absl::Span<const float> values) {
  for (float value : values) {
    seen_.low = std::min(seen_.low, double{value});
    seen_.high = std::max(seen_.high, double{value});
  }
}

void Observer::AddHistogram(absl::Span<const float> values) {
  histogram_.absmax = seen_.absmax();
  if (histogram_.absmax == 0) return;
  const double bins_per_unit = kHistogramBins / histogram_.absmax;
  for (float value : values) {
    if (value == 0.0f) continue;
    const auto bin = static_cast<int>(std::fabs(double{value}) * bins_per_unit);
    histogram_.counts[std::min(bin, kHistogramBins - 1)] += 1;
  }
}

Range Observer::Choose(const CalibrationRule& rule, int levels) const {
  using Kind = CalibrationRule::Kind;
  if (rule.kind == Kind::kAbsMax || histogram_.absmax == 0) return seen_;
  double threshold = 0;
  if (rule.kind == Kind::kPercentile) {
    double all = 0, kept = 0;
    for (double count : histogram_.counts) all += count;
    int bins = 0;
    while (bins < kHistogramBins && kept * 100 < rule.percentile * all) {
      kept += histogram_.counts[bins++];
    }
    threshold = bins * histogram_.absmax / kHistogramBins;
  } else {
    const KlRule kl = rule.kind == Kind::kKl ? KlRule::kNcnn : KlRule::kMigacz;
    threshold = ChooseKl(histogram_, levels, kl).threshold;
  }
  return {std::max(seen_.low, -threshold), std::min(seen_.high, threshold)};
}

}  // namespace runnel::inference
