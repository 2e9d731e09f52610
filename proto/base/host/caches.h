#pragma once

// Sizes of this machine's caches. INT8 products choose by them how much they copy and pack at a
// time: their sums are exact in any order, so bytes do not depend on it. FP32 sums do, so FP32
// block sizes are constants (kernels/backends/cpu/fp32/summation_rule.h). Measurements rotate
// through more memory than the caches hold.

#include <cstdint>
#include <string>

namespace runnel {

// The cache that the block sizes were tuned for; assumed where the size is not known.
inline constexpr int64_t kTunedSecondLevelBytes = 1 << 20;

// Bytes of the second-level cache for each core that shares it, of the core that has the least, as
// Linux tells under `folder`. A core is counted once, however many threads it runs.
// kTunedSecondLevelBytes: Linux says nothing that can be read.
int64_t ReadSecondLevelBytes(const std::string& folder);

// Second-level cache of this machine, read once. Any thread.
int64_t SecondLevelBytes();

// Tests only, while nothing computes: takes the machine for one with such a cache; 0: for itself
// again.
void AssumeSecondLevelBytes(int64_t bytes);

}  // namespace runnel
