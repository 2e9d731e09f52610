#include "compress/mbq/mbq_math.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace runnel {
namespace {

constexpr float kMaxFloat = std::numeric_limits<float>::max();
constexpr double kRidge = 1e-6;  // times n

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

// A symmetric system of equations: the lower triangle, and the right-hand side.
struct System {
  std::array<std::array<double, kMaxMbqBits>, kMaxMbqBits> matrix = {};
  std::array<double, kMaxMbqBits> right = {};
};

// B^T B alpha = B^T x.
System NormalEquations(const MbqSums& sums, size_t n, int k) {
  const auto count = static_cast<double>(n);
  const double sum_x = MergeLanes(sums.x);
  System system;
  for (int i = 0; i < k; ++i) {
    system.right[i] = 2 * MergeLanes(sums.ones_x[i]) - sum_x;
    system.matrix[i][i] = count;
    for (int j = 0; j < i; ++j) {
      system.matrix[i][j] = count - 2 * static_cast<double>(sums.differ[j][i]);
    }
  }
  return system;
}

// False if a pivot is below `least`.
bool Solve(const System& system, int k, double least, std::array<double, kMaxMbqBits>* solution) {
  // matrix = L D L^T with a unit lower triangle L: Cholesky without square roots. y solves
  // L y = right on the way.
  std::array<std::array<double, kMaxMbqBits>, kMaxMbqBits> lower = {};
  std::array<double, kMaxMbqBits> pivot = {}, y = system.right;
  for (int i = 0; i < k; ++i) {
    pivot[i] = system.matrix[i][i];
    for (int j = 0; j < i; ++j) {
      double entry = system.matrix[i][j];
      for (int m = 0; m < j; ++m) entry -= lower[i][m] * pivot[m] * lower[j][m];
      lower[i][j] = entry / pivot[j];
      pivot[i] -= entry * lower[i][j];
      y[i] -= lower[i][j] * y[j];
    }
    if (pivot[i] < least) return false;
  }
  for (int i = k - 1; i >= 0; --i) {
    double value = y[i] / pivot[i];
    for (int m = i + 1; m < k; ++m) value -= lower[m][i] * (*solution)[m];
    (*solution)[i] = value;
  }
  return true;
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

MbqSearch MakeSearch(const Alphas& alpha, int k, double centre) {
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
      search.tree[(1 << level) + prefix] = FloatAtMost(midpoint + centre);
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
  return Solve(NormalEquations(sums, n, k), k, 1e-9 * static_cast<double>(n), alpha_star);
}

std::array<double, kMaxMbqBits> RidgeAlphas(const MbqSums& sums, size_t n, int k) {
  System system = NormalEquations(sums, n, k);
  for (int i = 0; i < k; ++i) system.matrix[i][i] += kRidge * static_cast<double>(n);
  std::array<double, kMaxMbqBits> alpha_star = {};
  Solve(system, k, 0, &alpha_star);
  return alpha_star;
}

std::array<double, kMaxMbqBits> RidgeAlphasFromZero(const MbqSums& sums, size_t n, int k) {
  System system;
  for (int i = 0; i < k; ++i) {
    system.right[i] = MergeLanes(sums.ones_x[i]);
    system.matrix[i][i] = static_cast<double>(sums.ones[i]) + kRidge * static_cast<double>(n);
    for (int j = 0; j < i; ++j) {
      const int64_t both = sums.ones[i] + sums.ones[j] - sums.differ[j][i];
      system.matrix[i][j] = static_cast<double>(both) / 2;
    }
  }
  std::array<double, kMaxMbqBits> doubled = {};
  Solve(system, k, 0, &doubled);
  for (double& alpha : doubled) alpha /= 2;
  return doubled;
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
