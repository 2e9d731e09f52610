#pragma once

// The order of an epoch whose mini-batches mix new and replayed samples. Pure; any thread.

#include <cstdint>
#include <vector>

namespace runnel {

// Of `samples` samples the first `new_samples` are new.
struct Mixture {
  int64_t samples = 0;
  int64_t new_samples = 0;
  int64_t session = 0;
};

// Each sample once. A mini-batch of B takes n = max(1, round(B new / samples)) new ones, as long as
// there are some, and fills up with the others, then with what is left; the new ones lie evenly in
// it, so that its micro-batches have them alike. Both kinds come in the order of
// EpochPermutation(samples, run_seed, epoch, session), which is the result where all are of one kind.
std::vector<int64_t> MixedOrder(const Mixture& mixture, int64_t batch_size, uint64_t run_seed,
                                int64_t epoch);

}  // namespace runnel
