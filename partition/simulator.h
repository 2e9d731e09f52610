#pragma once

// A pipeline as a discrete-event simulation: the same order of actions as the workers' (NextAction,
// proto/base/plan/next_action.h), on lanes and links with given times. Pure; the same input gives
// the same output.
// A stage has one compute lane, which runs the forward, input-gradient or weight-gradient that
// NextAction names and waits for a missing input. One codec lane, first in first out, encodes and
// decodes. A gradient goes to the codec lane when the input-gradient is done, before the next
// action runs. A link has a queue for each direction, first in first out, whose head occupies the
// bandwidth for send_ns and arrives delay_ns later. Directions on one medium share one queue. Of the
// stages on one host those that compute share its processors evenly, each one at most; where they
// are more than those, some of the time is lost. Stage 0 always has its samples, the last stage its
// labels.

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "partition/schedule.h"

namespace runnel {

// A host that has less of a processor is none: a worker takes part with this share or more.
inline constexpr double kLeastProcessors = 1e-3;

// Times of one micro-batch on a stage, nanoseconds, >= 0.
struct StageTimes {
  int64_t forward_ns = 0;
  int64_t input_gradient_ns = 0;
  int64_t weight_gradient_ns = 0;  // including the update
  // All layers of this stage and of the stages before are frozen. A micro-batch counts as in flight
  // until the next stage begins its forward; that news takes the delay of the way up.
  bool forward_only = false;
  // Position in SimulatedPipeline::host_processors of the processors that it computes on; -1: one
  // of its own.
  int32_t host = -1;

  int64_t total_ns() const { return forward_ns + input_gradient_ns + weight_gradient_ns; }
};

// Times of one micro-batch on one way of a link, nanoseconds, >= 0.
struct WayTimes {
  int64_t encode_ns = 0;  // on the sender's codec lane
  int64_t send_ns = 0;    // time for which the bandwidth is occupied
  int64_t delay_ns = 0;
  int64_t decode_ns = 0;  // on the receiver's codec lane
  // Ways with the same number >= 0 share a medium; -1: a way has its bandwidth to itself.
  int32_t medium = -1;

  int64_t total_ns() const { return encode_ns + send_ns + delay_ns + decode_ns; }
};

struct LinkTimes {
  WayTimes down;  // activations
  WayTimes up;    // gradients
};

struct SimulatedPipeline {
  std::vector<StageTimes> stages;
  std::vector<LinkTimes> links;  // stages.size() - 1
  std::vector<int64_t> caps;     // one a stage, >= 1, not growing
  // StageOrder, one a stage, >= 0. Empty: no stage defers any.
  std::vector<int64_t> deferred_weight_gradients;
  int64_t micro_batches = 0;  // in all, >= 1
  // The pipeline is empty after this many micro-batches, and again: a barrier, or the end of a
  // synchronous step. 0: only at the end.
  int64_t drain_every = 0;
  int64_t drain_pause_ns = 0;                // between such an end and the next beginning
  std::vector<double> host_processors = {};  // by StageTimes::host, >= kLeastProcessors
};

struct SimulatedRun {
  int64_t total_ns = 0;
  // While a lane or a way works.
  std::vector<int64_t> compute_busy_ns;  // by stage
  std::vector<int64_t> codec_busy_ns;    // by stage
  std::vector<int64_t> down_busy_ns;     // by link
  std::vector<int64_t> up_busy_ns;       // by link
};

// Of a whole processor, what each of so many stages has that compute on a host at the same time.
double SpeedOnHost(double processors, double stages);

// Called when an action ends. `sequence` counts from 0 over the run.
using SimulatedActionFn =
    std::function<void(int stage, Action action, int64_t sequence, int64_t end_ns)>;

// InvalidArgument names what does not fit: no stage, links, caps or deferred weight-gradients of
// another number, a host that is not there or has fewer than kLeastProcessors, a negative time or
// count, growing caps, a stage of forwards alone behind another one, a run that could take longer
// than 2^62 ns.
absl::Status CheckPipeline(const SimulatedPipeline& pipeline);

// Errors as CheckPipeline. `on_action` may be null; without it stretches between two drains that
// are alike are simulated once.
absl::StatusOr<SimulatedRun> Simulate(const SimulatedPipeline& pipeline,
                                      const SimulatedActionFn& on_action = nullptr);

// Nanoseconds a micro-batch, between drains, that no pipeline of these times and caps can go below:
// the longest of every lane, way, medium (all frames on it) and host (its stages' computation over
// its processors), and over stages i <= j, the round
// trip from i down to j and back over c_i - c_j + 1, the micro-batches that may be in it. For j the
// last stage (cap 1) this is round_trip_i / c_i, a common but weaker bound; i = j is the lane
// itself. Deferring weight-gradients changes nothing here: once as many as allowed are deferred,
// each input-gradient is followed by a weight-gradient again, of an earlier micro-batch. Deferring
// shortens the filling and the draining.
double BoundNs(const SimulatedPipeline& pipeline);
// The same bound without the caps: lanes, directions, media and hosts only.
double ResourceBoundNs(const SimulatedPipeline& pipeline);
// Whether BoundNs is the steady period itself: nothing waits behind a job of another kind, that is,
// no two ways share a medium, no codec lane has two kinds of jobs that take time, and no host has
// more stages than processors.
bool BoundIsExact(const SimulatedPipeline& pipeline);

// Nanoseconds a micro-batch once the pipeline is full. micro_batches 0: BoundNs where that is
// exact, else as below with as many as make the caps' effect small. Else: Simulate over
// `micro_batches` without drains, the slope of a line through the ends at stage 0 (two of them
// would stand anywhere within the pipeline's cycle); at least BoundNs.
absl::StatusOr<double> SteadyPeriodNs(SimulatedPipeline pipeline, int64_t micro_batches = 0);

}  // namespace runnel
