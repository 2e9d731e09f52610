#include "proto/base/training/epoch_order.h"

#include <numeric>
#include <utility>

#include "proto/base/random.h"

namespace runnel {

std::vector<int64_t> EpochPermutation(int64_t samples, uint64_t run_seed, int64_t epoch,
                                      int64_t session) {
  std::vector<int64_t> order(samples);
  std::iota(order.begin(), order.end(), int64_t{0});
  const CounterRandom random(run_seed, RandomPurpose::kShuffle, static_cast<uint64_t>(session),
                             static_cast<uint64_t>(epoch));
  for (int64_t i = samples - 1; i > 0; --i) {
    std::swap(order[i], order[random.Below(i, static_cast<uint32_t>(i + 1))]);
  }
  return order;
}

}  // namespace runnel
