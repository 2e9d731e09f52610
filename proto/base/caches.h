#pragma once

// What the caches of this machine hold. INT8 products choose how much they copy and pack at a time
// by it: their sums are exact in any order, so bytes do not depend on it. FP32 sums do, so FP32
// block sizes are constants (kernels/backends/cpu/fp32/summation_rule.h). Measurements rotate through more
// memory than that.

#include <cstdint>
#include <string>

namespace runnel {

// For which the block sizes were tuned; a cache that is not known is taken for this one.
inline constexpr int64_t kTunedSecondLevelBytes = 1 << 20;

// Bytes of the second-level cache for each core that shares it, of the core that has the least, as
// Linux tells under `folder`. A core is counted once, however many threads it runs.
// kTunedSecondLevelBytes: Linux says nothing that can be read.
int64_t ReadSecondLevelBytes(const std::string& folder);

// Of this machine, read once. Any thread.
int64_t SecondLevelBytes();

// Tests only, while nothing computes: takes the machine for one with such a cache; 0: for itself
// again.
void AssumeSecondLevelBytes(int64_t bytes);

}  // namespace runnel
