#pragma once

// What a stage's work takes: when its compute lane is busy and when it waits, processor time and
// energy. Its host counts frames, bytes and losses in the same telemetry.

#include <cstdint>

#include "proto/base/clock.h"
#include "proto/base/figures/span.h"
#include "proto/base/host/processor_time.h"
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
  // Moments within an action; 0: it has no such part.
  struct Parts {
    int64_t forward_ended_ns = 0;  // of an action that is more than a forward
    int64_t update_began_ns = 0;   // the update takes the rest of the action
  };
  void EndAction(SpanKind kind, const TaskTime& time, const Parts& parts);
  void EndAction(SpanKind kind, const TaskTime& time) { EndAction(kind, time, Parts()); }
  // Encoding or decoding of a tensor has ended.
  void EndCoding(SpanKind kind, int64_t took_ns);
  // A frame of so many bytes has come in. bytes_per_second: of the link; 0: not measured yet.
  void CountArrival(Direction direction, int64_t bytes, double bytes_per_second);
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
