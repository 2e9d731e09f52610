#include "central/data/latents/mixed_order.h"

#include <algorithm>

#include "central/data/batch_source.h"

namespace runnel {

std::vector<int64_t> MixedOrder(const Mixture& mixture, int64_t batch_size, uint64_t run_seed,
                                int64_t epoch) {
  const auto [samples, new_samples, session] = mixture;
  std::vector<int64_t> order = EpochPermutation(samples, run_seed, epoch, session);
  if (new_samples == 0 || new_samples == samples) return order;
  std::vector<int64_t> fresh, replayed;
  for (const int64_t index : order) (index < new_samples ? fresh : replayed).push_back(index);
  // Rounded to the nearest, a half up.
  const int64_t share =
      std::max<int64_t>(1, (2 * batch_size * new_samples + samples) / (2 * samples));
  std::vector<int64_t> mixed;
  auto next_fresh = fresh.begin();
  auto next_replayed = replayed.begin();
  while (std::ssize(mixed) < samples) {
    const int64_t size = std::min(batch_size, samples - std::ssize(mixed));
    const int64_t least = size - (replayed.end() - next_replayed);
    const int64_t count =
        std::max(std::min({share, int64_t{fresh.end() - next_fresh}, size}), least);
    for (int64_t i = 0; i < size; ++i) {
      const bool is_new = (i + 1) * count / size > i * count / size;
      mixed.push_back(is_new ? *next_fresh++ : *next_replayed++);
    }
  }
  return mixed;
}

}  // namespace runnel
