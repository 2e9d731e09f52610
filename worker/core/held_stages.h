#pragma once

// The stage that a worker trains, and beside it the stage of the next plan, which waits for its
// CommitPlan.

#include <memory>
#include <optional>

#include "proto/base/ids.h"
#include "proto/transport/link/link_shell.h"
#include "worker/core/workshop.h"
#include "worker/host/stage_host.h"

namespace runnel {

// Call all methods on the loop's thread. The workshop retires what is let go of.
class HeldStages {
 public:
  // A stage of the next plan, and whom its links take.
  struct Prepared {
    std::unique_ptr<StageHost> host;
    Generation generation;
    LinkExpectation expectation;
    LinkShaping shaping;
  };

  // `workshop` outlives all uses but the destructor.
  explicit HeldStages(Workshop* workshop) : workshop_(workshop) {}

  // Null: there is none.
  StageHost* current() const { return current_.get(); }
  // Of the plan that holds here, also where this worker has no stage in it.
  Generation generation() const { return generation_; }
  void DropCurrent();

  void PutAside(Prepared prepared) { aside_ = std::move(prepared); }
  void DropAside();
  // This plan comes into force: its stage, if there is one aside, is the current one from now on.
  // Its host is left out of the answer; nothing: this worker has no stage in the plan.
  std::optional<Prepared> Commit(Generation generation);
  // The plan is taken back, if it was not committed, and so are all before it.
  void TakeBack(Generation generation);
  bool IsTakenBack(Generation generation) const { return generation <= taken_back_; }

  // Ends both at once, on this thread.
  void Clear();

 private:
  Workshop* const workshop_;
  std::unique_ptr<StageHost> current_;
  Generation generation_;
  std::optional<Prepared> aside_;
  Generation taken_back_;
};

}  // namespace runnel
