#pragma once

// The rule that orders the work of one stage (AccEPT 2.1; FTPipeHD's limit of micro-batches in
// flight; zero-bubble pipelines for the split backward). It sees counts only, never arrivals or
// time: the order of a stage's actions is a function of the plan.

#include <cstdint>

namespace runnel {

// A stage's computation for a micro-batch. The optimizer step has no action of its own: it follows
// the weight-gradient of the last micro-batch of its mini-batch at once.
enum class Action : uint8_t { kForward, kInputGradient, kWeightGradient, kDrained };

// The plan's numbers for one stage's order.
struct StageOrder {
  // Micro-batches between forward and input-gradient, at most; >= 1.
  int64_t cap = 1;
  // Micro-batches that may wait for their weight-gradient while other work runs; >= 0. 0: each
  // weight-gradient comes right behind its input-gradient.
  int64_t deferred_weight_gradients = 0;

  friend bool operator==(const StageOrder&, const StageOrder&) = default;
};

// Micro-batches whose action of each kind this stage has done since the run's start.
// forwards >= input_gradients >= weight_gradients.
struct StageProgress {
  int64_t forwards = 0;
  int64_t input_gradients = 0;
  int64_t weight_gradients = 0;
};

// The only action that may run next, on the micro-batch that its count names; if its input has not
// arrived the stage waits. `boundary`: the pipeline drains when this many forwards are done: the
// next barrier, and for a synchronous schedule the end of the mini-batch. Drained means that all
// three counts are `boundary`.
//
// Each kind runs in ascending order. A stage keeps at most cap + deferred_weight_gradients
// micro-batches (forwards - weight_gradients). A weight-gradient waits for nobody, and forwards and
// input-gradients keep the order that they have without deferring: so deferring cannot deadlock.
constexpr Action NextAction(const StageOrder& order, int64_t boundary, const StageProgress& done) {
  const int64_t deferred = done.input_gradients - done.weight_gradients;
  if (deferred > order.deferred_weight_gradients) return Action::kWeightGradient;
  if (done.forwards < boundary && done.forwards - done.input_gradients < order.cap) {
    return Action::kForward;
  }
  if (done.input_gradients < done.forwards) return Action::kInputGradient;
  return deferred > 0 ? Action::kWeightGradient : Action::kDrained;
}

}  // namespace runnel
