#pragma once

// Sine and cosine from additions and multiplications only: the same bytes on every machine, which a
// C library's sine does not promise.

#include <cmath>
#include <initializer_list>

namespace runnel {

// sin(2 pi turns), to 1e-9 for |turns| below 2^40.
inline double SinTurns(double turns) {
  double r = turns - std::floor(turns + 0.5);  // [-0.5, 0.5)
  if (r > 0.25) r = 0.5 - r;
  if (r < -0.25) r = -0.5 - r;
  const double x = 6.283185307179586476925286766559 * r;
  const double x2 = x * x;
  // Taylor's series to x^13 on a quarter turn.
  double sum = 1.0 / 6227020800.0;
  for (double term : {-1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1.0}) {
    sum = sum * x2 + term;
  }
  return sum * x;
}
inline double CosTurns(double turns) { return SinTurns(turns + 0.25); }

}  // namespace runnel
