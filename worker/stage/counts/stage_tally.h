#pragma once

// What a stage counts while it trains: multiply-adds by bits, values that f16 cannot hold, steps
// that were clipped.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>

#include "kernels/ir/compiler.h"
#include "kernels/ir/range_tally.h"
#include "kernels/ir/work_tally.h"
#include "proto/base/figures/telemetry.h"
#include "worker/stage/counts/effective_macs.h"

namespace runnel {

// The compute lane owns it; Fill from any thread.
class StageTally {
 public:
  struct Counted {
    bool macs = false;   // of products on grids
    bool gates = false;  // the kernels count what they compute, on grids or not
    bool range = false;  // of gradients that are f16
  };
  explicit StageTally(const Counted& counted);

  // A micro-batch of this program begins, with these bits. The program outlives the tally.
  void BeginForward(const Program& program, const GridBits& bits);
  // Who counts what the program's kernels compute; null: nobody.
  WorkTally* WorkOf(const Program& program);
  // Who counts what f16 cannot hold; null: nobody.
  RangeTally* range() const { return range_.get(); }
  // A part of the program has run.
  void EndPart(const Program& program, Part part);
  void AddClippedStep() { ++clipped_steps_; }

  void Fill(Telemetry& telemetry) const;

 private:
  const bool counts_macs_;
  std::map<const Program*, ProgramMacs> macs_;
  std::atomic<double> effective_macs_ = 0;    // without gates
  const std::unique_ptr<StageWork> work_;     // null: the model has no gates
  const std::unique_ptr<RangeTally> range_;   // null: gradients are no f16
  std::atomic<int64_t> gradient_values_ = 0;  // values that range_ was asked about
  std::atomic<int64_t> clipped_steps_ = 0;
};

}  // namespace runnel
