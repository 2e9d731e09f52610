#pragma once

// The slow reference of the primitives: sums term by term in the given order, each rounded once from
// its exact value.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/backends/small/primitives/numbers.h"

namespace runnel::small {

using Wide = __int128;
constexpr int kUnit = -60;  // exponent of the model's integers

inline Wide UnitsOf(float value) {
  int exponent = 0;
  const auto mantissa = static_cast<int64_t>(std::ldexp(std::frexp(value, &exponent), 24));
  const int shift = exponent - 24 - kUnit;
  return shift >= 0 ? static_cast<Wide>(mantissa) << shift : static_cast<Wide>(mantissa >> -shift);
}

// units * 2^kUnit to the nearest value of so many significant bits that is a multiple of 2^least.
inline double RoundUnits(Wide units, int bits, int least) {
  const bool is_negative = units < 0;
  Wide magnitude = is_negative ? -units : units;
  int length = 0;
  while (length < 126 && magnitude >> length != 0) ++length;
  const int drop = std::max(std::max(length - bits, least - kUnit), 0);
  if (drop > 0) {
    const Wide half = static_cast<Wide>(1) << (drop - 1), rest = magnitude & (half * 2 - 1);
    magnitude >>= drop;
    if (rest > half || (rest == half && (magnitude & 1) != 0)) ++magnitude;
  }
  const double value = std::ldexp(static_cast<double>(magnitude), drop + kUnit);
  return is_negative ? -value : value;
}

template <class Rule>
struct Model;

template <>
struct Model<Float32Rule> {
  static float Add(float sum, float a, float b) {
    if (kFuses) return std::fma(a, b, sum);
    const volatile float product = a * b;
    return sum + product;
  }
  static float Join(float a, float b) { return a + b; }
  static float Make(float value) { return value; }
};
template <class T>
struct Model<WideRule<T>> {
  static float Add(float sum, T a, T b) { return std::fma(ValueOf(a), ValueOf(b), sum); }
  static float Join(float a, float b) { return a + b; }
};
// Of halves themselves: products and sums are integers of 2^kUnit.
template <class T>
struct Model<NarrowRule<T>> {
  static constexpr bool kIsF16 = sizeof(T) == 2 && std::is_same_v<T, F16>;
  static T Round(Wide units) {
    const double value = RoundUnits(units, kIsF16 ? 11 : 8, kIsF16 ? -24 : -133);
    // The code of the value, by bisection of the magnitudes.
    uint32_t low = 0, high = kIsF16 ? 0x7C00 : 0x7F80;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (static_cast<double>(ValueOf(T{static_cast<uint16_t>(middle)})) < std::fabs(value)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return T{static_cast<uint16_t>((std::signbit(value) ? 0x8000 : 0) | low)};
  }
  static T Add(T sum, T a, T b) {
    const double product = static_cast<double>(ValueOf(a)) * ValueOf(b);
    const auto units = static_cast<Wide>(std::ldexp(product, -kUnit)) + UnitsOf(ValueOf(sum));
    return units == 0 ? Zero(product + ValueOf(sum)) : Round(units);
  }
  static T Join(T a, T b) {
    const Wide units = UnitsOf(ValueOf(a)) + UnitsOf(ValueOf(b));
    return units == 0 ? Zero(ValueOf(a) + ValueOf(b)) : Round(units);
  }
  // Integers have one zero.
  static T Zero(double signed_zero) {
    return T{static_cast<uint16_t>(std::signbit(signed_zero) ? 0x8000 : 0)};
  }
};

template <class Rule>
struct Term {
  typename Rule::Element a = {}, b = {};
};

// The sum of the terms as matrix.h orders them.
template <class Rule>
typename Rule::Sum SumOf(const std::vector<Term<Rule>>& terms, typename Rule::Sum first,
                         bool has_lanes) {
  using M = Model<Rule>;
  if (!has_lanes) {
    for (const Term<Rule>& term : terms) first = M::Add(first, term.a, term.b);
    return first;
  }
  typename Rule::Sum lanes[2] = {}, last = {};
  const size_t pairs = terms.size() / 2 * 2;
  for (size_t i = 0; i < pairs; ++i) lanes[i % 2] = M::Add(lanes[i % 2], terms[i].a, terms[i].b);
  if (pairs < terms.size()) last = M::Add(last, terms[pairs].a, terms[pairs].b);
  return M::Join(last, M::Join(lanes[0], lanes[1]));
}

}  // namespace runnel::small
