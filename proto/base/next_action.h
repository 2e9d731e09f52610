#pragma once

// The rule that orders the work of one stage (AccEPT 2.1; FTPipeHD's limit of micro-batches in
// flight). It sees counts only, never arrivals or time: the order of a stage's actions is a
// function of the plan.

#include <cstdint>

namespace runnel {

enum class Action : uint8_t { kForward, kBackward, kDrained };

// cap: micro-batches that may be in flight at this stage, >= 1.
// boundary: the pipeline drains when this many forwards are done: the next barrier, and for a
// synchronous schedule the
//   end of the mini-batch.
// forwards, backwards: micro-batches whose forward / backward this stage has done since the run's
// start. The action named is the *only* one that may run next; if its input has not arrived the
// stage waits.
constexpr Action NextAction(int64_t cap, int64_t boundary, int64_t forwards, int64_t backwards) {
  if (forwards < boundary && forwards - backwards < cap) return Action::kForward;
  if (backwards < forwards) return Action::kBackward;
  return Action::kDrained;
}

}  // namespace runnel
