#include "compress/normal_errors.h"

#include <cstddef>

namespace runnel {
namespace {

constexpr size_t kFewestBits = 2;

// Errors by bits, 2 to 8.
using Errors = double[7];

double At(const Errors& errors, double bits) {
  return errors[static_cast<size_t>(bits) - kFewestBits];
}

}  // namespace

double HadamardNormalError(double bits) {
  constexpr Errors kErrors = {0.1184, 0.03723, 0.01139, 0.003312, 0.0008764, 0.0002178, 0.00005205};
  return At(kErrors, bits);
}

double EdenNormalError(double bits) {
  const double biased = HadamardNormalError(bits);
  return biased / (1 - biased);
}

double MbqNormalError(double bits) {
  constexpr Errors kErrors = {0.1303, 0.05847, 0.03172, 0.0218, 0.01706, 0.01444, 0.01262};
  return At(kErrors, bits);
}

double StochasticNormalError(double bits) { return bits < 8 ? 0.075 : 0.00023; }

double TileNormalError(double bits) {
  constexpr Errors kErrors = {0.3025, 0.05504, 0.01202, 0.002801, 0.0006833, 0.0001678, 0.00004175};
  return At(kErrors, bits);
}

double UniformNormalError(double bits) {
  constexpr Errors kErrors = {0.5412, 0.2069, 0.02265, 0.005199, 0.005184, 0.005184, 0.005184};
  return At(kErrors, bits);
}

}  // namespace runnel
