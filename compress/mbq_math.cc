#include "compress/mbq_math.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace runnel {
namespace {

constexpr float kMaxFloat = std::numeric_limits<float>::max();

// Rounded to nearest; beyond the finite range the largest finite value.
float ToFiniteFloat(double value) {
  return static_cast<float>(std::clamp<double>(value, -kMaxFloat, kMaxFloat));
}

// The largest float that is not above `value`.
float FloatAtMost(double value) {
  if (value < -static_cast<double>(kMaxFloat)) return -std::numeric_limits<float>::infinity();
  const float rounded = ToFiniteFloat(value);
  if (static_cast<double>(rounded) <= value) return rounded;
  return std::nextafter(rounded, -std::numeric_limits<float>::infinity());
}

// Magnitudes, largest first.
Alphas SortedMagnitudes(const Alphas& alpha, int k) {
  Alphas sorted = {};
  for (int i = 0; i < k; ++i) {
    int place = i;
    for (; place > 0 && sorted[place - 1] < std::abs(alpha[i]); --place) {
      sorted[place] = sorted[place - 1];
    }
    sorted[place] = std::abs(alpha[i]);
  }
  return sorted;
}

}  // namespace

double EmaWeight(int64_t t) {
  return std::min(0.9, static_cast<double>(1 + t) / static_cast<double>(10 + t));
}

Alphas GreedyAlphas(const float* x, size_t n, int k) {
  std::array<double, kMaxMbqBits> alpha = {};
  for (int i = 0; i < k; ++i) {
    SumLanes lanes = {};
    for (size_t e = 0; e < n; ++e) {
      double r = x[e];
      for (int j = 0; j < i; ++j) r -= r >= 0 ? alpha[j] : -alpha[j];
      lanes[e % kSumLanes] += std::abs(r);
    }
    alpha[i] = MergeLanes(lanes) / static_cast<double>(n);
  }
  Alphas rounded = {};
  for (int i = 0; i < k; ++i) rounded[i] = ToFiniteFloat(alpha[i]);
  return SortedMagnitudes(rounded, k);
}

double LevelOf(const Alphas& alpha, int k, int code) {
  double level = 0;
  for (int i = 0; i < k; ++i) {
    const double a = alpha[i];
    level += (code >> (k - 1 - i)) & 1 ? a : -a;
  }
  return level;
}

MbqSearch MakeSearch(const Alphas& alpha, int k) {
  const int count = 1 << k;
  std::array<std::pair<double, int32_t>, 256> levels;
  for (int code = 0; code < count; ++code) levels[code] = {LevelOf(alpha, k, code), code};
  std::sort(levels.begin(), levels.begin() + count);
  MbqSearch search;
  search.k = k;
  search.natural = true;
  for (int rank = 0; rank < count; ++rank) {
    search.code_of_rank[rank] = levels[rank].second;
    search.natural = search.natural && levels[rank].second == rank;
  }
  for (int level = 0; level < k; ++level) {
    for (int prefix = 0; prefix < (1 << level); ++prefix) {
      const int below = ((2 * prefix + 1) << (k - 1 - level)) - 1;
      const double midpoint = (levels[below].first + levels[below + 1].first) / 2;
      search.tree[(1 << level) + prefix] = FloatAtMost(midpoint);
    }
  }
  return search;
}

MbqLevels MakeLevels(const Alphas& alpha, int k, float mean_error) {
  MbqLevels levels;
  levels.k = k;
  for (int code = 0; code < (1 << k); ++code) {
    levels.value[code] = ToFiniteFloat(LevelOf(alpha, k, code) - static_cast<double>(mean_error));
  }
  return levels;
}

bool SolveAlphas(const MbqSums& sums, size_t n, int k,
                 std::array<double, kMaxMbqBits>* alpha_star) {
  using Row = std::array<double, kMaxMbqBits>;
  const auto count = static_cast<double>(n);
  const double sum_x = MergeLanes(sums.x);
  // B^T B = L D L^T with a unit lower triangle L: Cholesky without square roots. y solves
  // L y = B^T x on the way.
  std::array<Row, kMaxMbqBits> lower = {};
  Row pivot = {};
  Row y = {};
  for (int i = 0; i < k; ++i) {
    y[i] = 2 * MergeLanes(sums.ones_x[i]) - sum_x;
    pivot[i] = count;
    for (int j = 0; j < i; ++j) {
      double entry = count - 2 * static_cast<double>(sums.differ[j][i]);
      for (int m = 0; m < j; ++m) entry -= lower[i][m] * pivot[m] * lower[j][m];
      lower[i][j] = entry / pivot[j];
      pivot[i] -= entry * lower[i][j];
      y[i] -= lower[i][j] * y[j];
    }
    if (pivot[i] < 1e-9 * count) return false;
  }
  for (int i = k - 1; i >= 0; --i) {
    double value = y[i] / pivot[i];
    for (int m = i + 1; m < k; ++m) value -= lower[m][i] * (*alpha_star)[m];
    (*alpha_star)[i] = value;
  }
  return true;
}

bool MixAlphas(const Alphas& alpha, const std::array<double, kMaxMbqBits>& alpha_star, int k,
               double beta, Alphas* mixed) {
  for (int i = 0; i < k; ++i) {
    const double value = beta * static_cast<double>(alpha[i]) + (1 - beta) * alpha_star[i];
    if (!(std::abs(value) <= static_cast<double>(kMaxFloat))) return false;
    (*mixed)[i] = static_cast<float>(value);
  }
  return true;
}

float MeanError(const Alphas& alpha, const MbqSums& sums, size_t n, int k) {
  double total = 0;
  for (int i = 0; i < k; ++i) {
    const int64_t signs = 2 * sums.ones[i] - static_cast<int64_t>(n);
    total += static_cast<double>(alpha[i]) * static_cast<double>(signs);
  }
  return ToFiniteFloat((total - MergeLanes(sums.x)) / static_cast<double>(n));
}

Alphas Canonical(const Alphas& alpha, int k) { return SortedMagnitudes(alpha, k); }

}  // namespace runnel
