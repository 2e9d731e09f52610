#pragma once

// Batch splitting (Mandheling, MobiCom 2022, section 3.5): a product whose micro-batch is too large
// for a cache takes it in slices. Pure functions; any thread.

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/ir/program.h"
#include "proto/base/training/batch_split.h"

namespace runnel {

// T(samples): how long an instruction takes for a batch, or a slice, of so many samples.
struct BatchSeconds {
  int64_t samples = 0;
  double seconds = 0;
};

// The B' that divides `batch` and has the least (batch / B') * T(B') in the profile, of equal ones
// the largest. `batch` itself where the profile has no divisor of it. The paper's rule, which
// splits where T(B) / B is out of the ordinary, misses cases of its own Table 4.
int64_t FastestSlice(int64_t batch, absl::Span<const BatchSeconds> profile);

// Gives every product of the program its slices. kOff and kAuto leave all of them whole (kAuto:
// SplitByProfile, backends/tuner.h). gradient_rounding: of the slices that are shifted.
void SplitBatches(const BatchSplitRule& rule, Rounding gradient_rounding, Program& program);

}  // namespace runnel
