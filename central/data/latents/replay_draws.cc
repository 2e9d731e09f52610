#include "central/data/latents/replay_draws.h"

#include <algorithm>
#include <utility>

#include "proto/base/random.h"

namespace runnel {

std::vector<int64_t> DrawByClass(absl::Span<const int32_t> labels,
                                 absl::Span<const int32_t> classes, int64_t each, uint64_t seed,
                                 ReplayDraw draw, int64_t session) {
  std::vector<int64_t> drawn;
  for (const int32_t label : classes) {
    std::vector<int64_t> members;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == label) members.push_back(static_cast<int64_t>(i));
    }
    // Orders of epochs (batch_source.h) have small indices.
    const uint64_t stream =
        uint64_t{static_cast<uint8_t>(draw)} << 40 | static_cast<uint32_t>(label);
    const CounterRandom random(seed, RandomPurpose::kShuffle, stream,
                               static_cast<uint64_t>(session));
    const auto count = std::min(each, std::ssize(members));
    for (int64_t i = 0; i < count; ++i) {
      const auto left = static_cast<uint32_t>(std::ssize(members) - i);
      std::swap(members[static_cast<size_t>(i)],
                members[static_cast<size_t>(i + random.Below(static_cast<uint64_t>(i), left))]);
    }
    drawn.insert(drawn.end(), members.begin(), members.begin() + count);
  }
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

}  // namespace runnel
