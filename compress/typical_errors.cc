#include "compress/typical_errors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "compress/codec.h"
#include "proto/base/random.h"

namespace runnel {
namespace {

constexpr int kFewestBits = 2;

// Errors or shares by bits, 2 to 8.
struct ByBits {
  double activations[7];
  double gradients[7];

  double At(Direction direction, double bits) const {
    const double* of = direction == Direction::kForward ? activations : gradients;
    return of[static_cast<int>(bits) - kFewestBits];
  }
};

}  // namespace

std::vector<float> TypicalTensor(Direction direction, uint64_t seed, int64_t sequence,
                                 size_t elements) {
  const bool down = direction == Direction::kForward;
  const CounterRandom random(seed, PurposeOf(direction), 0, static_cast<uint64_t>(sequence));
  std::vector<float> x(elements);
  for (size_t e = 0; e < elements; ++e) {
    x[e] = down ? std::max(0.0f, static_cast<float>(random.Normal(e)))
                : static_cast<float>(1e-3 * random.Normal(2 * e) * random.Normal(2 * e + 1));
  }
  return x;
}

double TileError(Direction direction, double bits) {
  static constexpr ByBits kErrors = {
      {0.0757, 0.01383, 0.003073, 0.0007476, 0.0002118, 7.937e-05, 1.698e-05},
      {1.476, 0.2593, 0.05684, 0.01333, 0.003225, 0.0007999, 0.0001988}};
  return kErrors.At(direction, bits);
}

double HadamardError(Direction direction, double bits) {
  static constexpr ByBits kErrors = {
      {0.08, 0.02503, 0.007693, 0.002224, 0.0005847, 0.0001452, 3.527e-05},
      {0.6862, 0.125, 0.0272, 0.006444, 0.001549, 0.0003818, 9.55e-05}};
  return kErrors.At(direction, bits);
}

double HadamardFeedbackError(double bits) {
  // What is lost comes later; eden's gradients less what its unbiased step costs.
  const double unbiased = EdenError(Direction::kBackward, bits);
  return unbiased / (1 + unbiased);
}

double EdenError(Direction direction, double bits) {
  static constexpr ByBits kErrors = {
      {0.09057, 0.02589, 0.007737, 0.002217, 0.0005819, 0.0001446, 3.517e-05},
      {0.1315, 0.03758, 0.01116, 0.003234, 0.0008524, 0.0002158, 5.376e-05}};
  return kErrors.At(direction, bits);
}

double TileAnsShare(Direction direction, double bits) {
  static constexpr ByBits kShares = {{0.6333, 0.6615, 0.6570, 0.6430, 0.6280, 0.6440, 0.6581},
                                     {0.6779, 0.7284, 0.7946, 0.8388, 0.8678, 0.8881, 0.9038}};
  return kShares.At(direction, bits);
}

double HadamardAnsShare(Direction direction, double bits) {
  static constexpr ByBits kShares = {{0.9566, 0.9247, 0.9050, 0.9014, 0.9121, 0.9248, 0.9361},
                                     {0.7309, 0.7987, 0.8559, 0.8905, 0.9118, 0.9264, 0.9377}};
  return kShares.At(direction, bits);
}

double EdenAnsShare(Direction direction, double bits) {
  static constexpr ByBits kShares = {{0.9566, 0.9247, 0.9050, 0.9014, 0.9121, 0.9248, 0.9361},
                                     {0.9571, 0.9253, 0.9053, 0.9021, 0.9135, 0.9264, 0.9377}};
  return kShares.At(direction, bits);
}

double MbqError(Direction direction, double bits) {
  static constexpr ByBits kErrors = {
      {0.1493, 0.04657, 0.02269, 0.01442, 0.01088, 0.009008, 0.007776},
      {0.2096, 0.08085, 0.04565, 0.03355, 0.0274, 0.02389, 0.02229}};
  return kErrors.At(direction, bits);
}

double MaskedMbqError(Direction direction, double bits) {
  static constexpr double kActivations[] = {0.05211,   0.02346,   0.007403, 0.001909,
                                            0.0004735, 0.0001178, 2.905e-05};
  if (direction == Direction::kBackward) return MbqError(direction, bits);
  return kActivations[static_cast<int>(bits) - kFewestBits];
}

double AmsgradMbqError(double bits) {
  static constexpr double kActivations[] = {0.2378,  0.1579,  0.08844, 0.06471,
                                            0.05162, 0.04296, 0.03677};
  return kActivations[static_cast<int>(bits) - kFewestBits];
}

double StochasticError(Direction direction, double bits) {
  if (direction == Direction::kForward) return bits < 8 ? 0.06402 : 0.0001961;
  return bits < 8 ? 0.3037 : 0.001108;
}

double GridError(Direction direction, double bits) {
  static constexpr double kActivations[] = {0.9205,   0.1881,   0.03457,   0.007515,
                                            0.001759, 0.000426, 0.0001049, 2.602e-05};
  static constexpr double kGradients[] = {120.9,   11.92,   1.633,   0.3538,
                                          0.08573, 0.02077, 0.00511, 0.001256};
  constexpr int kBits = 8;
  const double* errors = direction == Direction::kForward ? kActivations : kGradients;
  const int least = std::min(static_cast<int>(bits), kBits);
  // From there on each bit quarters it.
  return std::ldexp(errors[least - 1], -2 * (static_cast<int>(bits) - least));
}

double UniformError(double bits) {
  static constexpr double kActivations[] = {0.6602,   0.2591,   0.02799, 0.005201,
                                            0.005187, 0.005187, 0.005187};
  return kActivations[static_cast<int>(bits) - kFewestBits];
}

double MxError(Direction direction, double bits) {
  const bool down = direction == Direction::kForward;
  if (bits < 6) return down ? 0.01377 : 0.01742;
  if (bits < 8) return 0.00305;
  return down ? 0.001002 : 0.001055;
}

}  // namespace runnel
