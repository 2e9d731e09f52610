#pragma once

// The order in which an epoch visits the samples of the data set, known to central and every worker
// from the run's settings alone. Pure; any thread.

#include <cstdint>
#include <vector>

namespace runnel {

// The order of an epoch's samples: Fisher-Yates with the draws of CounterRandom(run_seed, kShuffle,
// session, epoch), so that any micro-batch can be filled again without what came before it (resume,
// replay).
// session: of learning that goes on (Dataset::session).
std::vector<int64_t> EpochPermutation(int64_t samples, uint64_t run_seed, int64_t epoch,
                                      int64_t session = 0);

}  // namespace runnel
