#pragma once

// Another memory plan for a compiled program: which values it has and how long each lives is found by
// following reads and writes, so that a test may lay them out as it likes, or destroy what is dead.
// Pure functions; one thread.

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ir/program.h"

namespace runnel {

// kSpread: no two values share a byte. kDrawn: elementwise instructions work in place where PlanMemory
// lets them, all else is placed by draws of `seed`, which prefer to lay a value over a part of one that
// died shortly before its first writer. kLoose: draws also say who works in place.
enum class Arrangement : uint8_t { kSpread, kDrawn, kLoose };

// A value in the stash or the scratch, or several that share memory because instructions work in place.
// Time counts the instructions of forward, input-gradient and weight-gradient; evaluation and update
// follow, and share no value with these.
struct PlannedValue {
  BufferIndex writer = 0;  // the buffer by whose name it is written
  Storage storage = Storage::kScratch;
  int64_t offset_bytes = 0;
  int64_t bytes = 0;
  int first = 0;  // time at which it is written
  int last = 0;   // time at which it is read for the last time
};

struct ProgramValues {
  std::vector<PlannedValue> values;        // in the order of their writers
  std::vector<int> value_of;               // by buffer; -1: neither in the stash nor in the scratch
  std::array<int, kPartCount> start = {};  // time of each part's first instruction
  bool crosses_in_scratch = false;         // CompileOptions::one_in_flight
};

// Internal: an instruction reads memory that nobody wrote, or that another value has overwritten, or
// an output lies over an operand where it must not: the program's own memory plan is wrong.
absl::StatusOr<ProgramValues> FollowMemory(const Program& program);

// The same program with other places. Errors as FollowMemory's.
absl::StatusOr<Program> Rearrange(const Program& program, Arrangement arrangement, uint64_t seed);

// Whether memory may be destroyed right before instruction `i` of a part; i: its size: behind the last.
using BoundaryFn = std::function<bool(Part part, size_t i)>;

// The same program in the same places with copies over the bytes of each value that is dead, at the
// first boundary after its last reader. They copy from the last bytes of the scratch, *poison_offset
// and behind, which the caller fills. Errors as FollowMemory's.
absl::StatusOr<Program> PoisonDeadValues(const Program& program, const BoundaryFn& is_boundary,
                                         int64_t* poison_offset);

}  // namespace runnel
