#pragma once

// How far the values of a tensor go, as seen over calibration samples: ranges and histograms, and
// the thresholds that follow from them. Pure functions of what was observed.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel::inference {

inline constexpr int kHistogramBins = 2048;

// Counts of |x| over [0, absmax] in equal bins; exact zeros are left out.
struct Histogram {
  double absmax = 0;
  std::vector<double> counts = std::vector<double>(kHistogramBins, 0.0);
};

// Which divergence of the values before and after quantisation is made smallest.
enum class KlRule : uint8_t {
  kNcnn,    // ncnn's tool: bins split at real borders, 1e-4 added to each normalised bin
  kMigacz,  // 8-bit Inference with TensorRT: whole bins, mass on bins that are not empty
};

// Sum P ln(P / Q) where all beyond the first `bins` of them is clipped and the rest is quantised to
// `levels` values. levels <= bins <= kHistogramBins. Infinite if Q has nothing.
double KlDivergence(const Histogram& histogram, int bins, int levels, KlRule rule);

struct KlChoice {
  int bins = 0;
  double divergence = 0;
  double threshold = 0;  // (bins + 1/2) * absmax / kHistogramBins
};
// The smallest divergence over levels..kHistogramBins bins (ncnn: one less at the upper end); of
// equal ones the fewest bins. levels: of non-negative values, 128 for INT8.
KlChoice ChooseKl(const Histogram& histogram, int levels, KlRule rule);

// --calibration.
struct CalibrationRule {
  enum class Kind : uint8_t { kKl, kKlMigacz, kAbsMax, kPercentile };
  Kind kind = Kind::kKl;
  double percentile = 100;  // kPercentile: share of the values that is not clipped

  bool needs_histogram() const { return kind != Kind::kAbsMax; }
  friend bool operator==(const CalibrationRule&, const CalibrationRule&) = default;
};
// "kl", "kl:migacz", "absmax", "percentile:99.9" (above 50, at most 100). InvalidArgument lists
// them.
absl::StatusOr<CalibrationRule> ParseCalibration(absl::string_view text);

// What a value is taken to go from and to: low <= 0 <= high.
struct Range {
  double low = 0;
  double high = 0;
  double absmax() const { return high > -low ? high : -low; }
};

// Watches one tensor: first all samples for its range, then all again for its histogram.
class Observer {
 public:
  void AddRange(absl::Span<const float> values);
  void AddHistogram(absl::Span<const float> values);
  // The range without what the rule clips.
  Range Choose(const CalibrationRule& rule, int levels) const;
  const Range& seen() const { return seen_; }

 private:
  Range seen_;
  Histogram histogram_;
};

}  // namespace runnel::inference
