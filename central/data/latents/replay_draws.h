#pragma once

// Who is in the memory: draws of samples by class. Pure functions; any thread.

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace runnel {

// What draws are for; each has a stream of its own.
enum class ReplayDraw : uint8_t {
  kFill = 1,  // the memory from samples that were trained on before
  kNew = 2,   // a session's new samples
  kKeep = 3,  // the memory after a session
};

// Of each class at most `each` of its samples, all equally likely, as indices into `labels` in
// ascending order; other classes have none. Draws are those of CounterRandom(seed, kShuffle,
// (draw, class), session).
std::vector<int64_t> DrawByClass(absl::Span<const int32_t> labels,
                                 absl::Span<const int32_t> classes, int64_t each, uint64_t seed,
                                 ReplayDraw draw, int64_t session);

}  // namespace runnel
