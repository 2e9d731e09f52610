#pragma once

// Memory planning of a stage: which values share memory. Copies become views, elementwise
// instructions work in place where nobody else needs the value, and what remains is packed by its
// lifetime: greedily by size, each into the tightest gap that is free for as long as it lives.
// A pure function; any thread.

#include <vector>

#include "kernels/ir/program.h"

namespace runnel {

// Gives a storage and an offset to every buffer whose `placed` is false, takes out the copies that
// became views, and sets stash_bytes, scratch_bytes and backward_reads_output.
//
// In: every unplaced buffer is written by exactly one instruction, before it is read; the
// instructions of training run as forward, input-gradient, weight-gradient; evaluation shares no
// unplaced buffer with them. placed.size() == program.buffers.size().
//
// Values that cross from the forward to the backward lie in the stash; the others in parts of the
// stash that are not yet or no longer used, else in the scratch. Evaluation uses scratch alone. With
// CompileOptions::one_in_flight there is no stash: all of them lie in the scratch.
void PlanMemory(const std::vector<bool>& placed, bool one_in_flight, Program& program);

// What lies where and when in one area.
class AreaPlan {
 public:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t kNoGap = -1;

  // Offset of the tightest gap for `bytes` that is free from time `first` to `last` inclusive; the
  // end of the area counts as a gap that is used last. kNoGap if that would pass `limit_bytes`.
  int64_t Place(int64_t bytes, int first, int last, int64_t limit_bytes);
  // Past the last byte of everything placed.
  int64_t size_bytes() const { return size_bytes_; }

 private:
  struct Block {
    int64_t begin = 0;
    int64_t end = 0;
    int first = 0;
    int last = 0;
  };
  std::vector<Block> blocks_;  // by begin
  int64_t size_bytes_ = 0;
};

}  // namespace runnel
