#include "proto/base/random.h"

#include <cmath>

namespace runnel {
namespace {

// splitmix64's finalizer: each input bit reaches each output bit.
uint64_t Mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

CounterRandom::CounterRandom(uint64_t run_seed, RandomPurpose purpose, uint64_t index,
                             uint64_t sequence) {
  uint64_t key = Mix(run_seed);
  key = Mix(key ^ static_cast<uint64_t>(purpose));
  key = Mix(key ^ index);
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  sequence_ = {static_cast<uint32_t>(sequence), static_cast<uint32_t>(sequence >> 32)};
}

double CounterRandom::Normal(uint64_t element) const {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  // (0, 1]: the logarithm stays finite.
  const double u = (static_cast<double>(Bits(2 * element)) + 1.0) * 0x1p-32;
  const double v = static_cast<double>(Bits(2 * element + 1)) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(kTwoPi * v);
}

}  // namespace runnel
