#pragma once

// Draws for the generated data sets, from additions and multiplications only: the same bytes on
// every machine.

#include <cstdint>

#include "proto/base/random.h"
#include "proto/base/turns.h"

namespace runnel::data {

// Draws of one sample, one after the other.
class Draws {
 public:
  explicit Draws(const CounterRandom& random) : random_(random) {}

  // Uniform in [low, high).
  double Between(double low, double high) {
    return low + (high - low) * static_cast<double>(random_.Uniform(next_++));
  }
  // In [0, bound).
  uint32_t Below(uint32_t bound) { return random_.Below(next_++, bound); }
  // About normal with mean 0 and deviation 1: the centred sum of four uniform draws (sixteen bits
  // each, one Philox word for two of them), so never beyond 3.5.
  double Noise() {
    const uint32_t a = random_.Bits(next_);
    const uint32_t b = random_.Bits(next_ + 1);
    next_ += 2;
    const double sum = static_cast<double>((a & 0xFFFF) + (a >> 16) + (b & 0xFFFF) + (b >> 16));
    return (sum * 0x1p-16 - 2.0) * 1.7320508075688772;  // the sum's variance is 4 / 12
  }

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

}  // namespace runnel::data
