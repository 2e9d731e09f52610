#pragma once

// How long the actions of one kind took: how many there were in each class of length, and all their
// time together. Plain data: adding to it takes no lock, no memory and no clock.

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace runnel {

struct Histogram {
  // Longest action of each class, the last but one; the last class has all that took longer.
  // Ratios of about 3: a mean or a quantile of it is good to a factor, its sum is exact.
  static constexpr std::array<int64_t, 9> kBoundsNs = {300'000,     1'000'000,     3'000'000,
                                                       10'000'000,  30'000'000,    100'000'000,
                                                       300'000'000, 1'000'000'000, 3'000'000'000};

  int64_t sum_ns = 0;
  std::array<int64_t, kBoundsNs.size() + 1> counts = {};

  void Add(int64_t took_ns) {
    size_t at = 0;
    while (at < kBoundsNs.size() && took_ns > kBoundsNs[at]) ++at;
    ++counts[at];
    sum_ns += took_ns;
  }
  int64_t count() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

  friend bool operator==(const Histogram&, const Histogram&) = default;
};

}  // namespace runnel
