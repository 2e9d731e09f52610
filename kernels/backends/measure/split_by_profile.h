#pragma once

// Batch splitting by a measurement (--batch-split auto): each product of a program runs with the
// slices that are fastest here. The bytes do not depend on them.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/passes/batch_split.h"
#include "proto/base/clock.h"

namespace runnel {

// Result for one kind of product: the same code and shapes.
struct SplitChoice {
  Part part = Part::kForward;
  Instruction instruction;
  std::vector<BatchSeconds> profile;  // T(B') of the slices that were timed
  int64_t samples = 0;                // samples of a slice; the whole batch: not split
};

struct SplitProfile {
  std::vector<SplitChoice> choices;
  int products = 0;    // products of the program
  int split = 0;       // split ones of these
  int untimed = 0;     // products that the time did not suffice for: whole
  double seconds = 0;  // seconds that the search took
};
// "3 of 29 products in slices (2.1 s of timing)"
std::string ToString(const SplitProfile& profile);

inline constexpr double kSplitTimingSeconds = 3;

// Times every divisor of the batch for each product of training on `backend`, the whole batch run
// in such slices on random values, until limit_seconds are over; sets Instruction::split. A split
// has to save 3 %. Errors: those of Backend::Prepare and Executable::Run. For backends that take
// slices (BackendTraits::takes_slices): others are not to be asked.
absl::StatusOr<SplitProfile> SplitByProfile(Backend& backend, const Clock& clock,
                                            double limit_seconds, Program& program);

}  // namespace runnel
