#pragma once

// What a stage's work takes: when its compute lane is busy and when it waits, processor time and
// energy. Its host counts frames, bytes and losses in the same telemetry.

#include <cstdint>

#include "proto/base/clock.h"
#include "proto/base/processor_time.h"
#include "proto/transport/control/control.h"
#include "worker/energy/training_use.h"

namespace runnel {

// Call all methods on the loop's thread.
class StageMeter {
 public:
  // `clock` outlives the meter.
  StageMeter(const Clock* clock, Generation generation, TrainingUse use);

  // Training goes on: what passes until an action begins is waiting.
  void Resume();
  void BeginAction();
  void EndAction(const TaskTime& time);
  // A micro-batch's backward has ended. True: it was the stage's first.
  bool EndBackward(int64_t now_ns);
  // A barrier: what passes from now on is neither waiting nor training's.
  void Pause();

  Telemetry& counts() { return counts_; }
  // The counts, for the host to add the number of its micro-batches and Fill to add the rest.
  const Telemetry& counts() const { return counts_; }
  // Memory of the process; processor time and energy of the backwards that `telemetry` names.
  void Fill(Telemetry& telemetry) const;

 private:
  const Clock* clock_;
  Telemetry counts_;
  int64_t idle_since_ns_ = 0;  // 0: busy, or at a barrier
  // Counts between a grant and its barrier. Fill, which is const, brings it up to date.
  mutable TrainingUse use_;
};

}  // namespace runnel
