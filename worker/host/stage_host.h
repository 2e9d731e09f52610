#pragma once

// The daemon's view of its stage: a pipeline stage (PipelineHost) or the plain loop (PlainHost).

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/transport/control/control.h"
#include "proto/transport/link/link_shell.h"
#include "worker/energy/energy_counter.h"
#include "worker/host/span_log.h"
#include "worker/lane.h"
#include "worker/replication/replica_store.h"
#include "worker/stage/stage_engine.h"
#include "worker/stage/stage_executor.h"

namespace runnel {

// Reports of a stage, on the loop's thread.
struct StageEvents {
  std::function<void()> on_ready;  // its links stand
  std::function<void(Sequence)> on_barrier;
  std::function<void(const EvaluationDone&)> on_evaluation;
  std::function<void(const DryRunDone&)> on_dry_run;
  std::function<void()> on_first_backward;  // the first one of the stage is done
  std::function<void(const Replicated&)> on_replicated;
  std::function<void(const absl::Status&)> on_failed;  // at most once; nothing follows
};

// Call all methods on the loop's thread; TakeSnapshot on any, as long as the loop leaves the stage
// alone.
class StageHost {
 public:
  virtual ~StageHost() = default;
  // Begins to dial and to listen to its links.
  virtual void Start() = 0;
  // A peer has said hello on a data link.
  virtual void Attach(const std::string& role, std::shared_ptr<LoopConnection> connection) = 0;
  // Applies a change that was decided at the barrier where the stage stands.
  virtual void ChangeTraining(const TrainingChange& change) = 0;
  virtual absl::Status RunUntil(Sequence limit) = 0;
  virtual absl::Status Evaluate(Sequence first, int64_t micro_batches) = 0;
  // Only at a barrier. FailedPrecondition: the host has no links whose codecs it could measure.
  virtual absl::Status DryRun(Sequence first, int64_t micro_batches, const CodedWays& coded) = 0;
  // Only at a barrier. Unavailable: the device that holds the state is lost.
  virtual absl::StatusOr<ModelState> TakeSnapshot() = 0;
  // Only at a barrier: keeps `copy`, of TakeSnapshot's state, in the store of replicas, and sends it
  // to those who are to hold it while training goes on; making it took stall_ns. FailedPrecondition:
  // the copy before is still on its way, or the host has no neighbours.
  virtual absl::Status Replicate(const runnel::Replicate& request,
                                 std::shared_ptr<const SummedState> copy, int64_t stall_ns) = 0;
  virtual Telemetry telemetry() const = 0;
  // Of the backend that computes the stage.
  virtual std::string numerics_class() const = 0;
  // Grows with each micro-batch that the stage evaluates.
  virtual int64_t evaluated() const = 0;
  // An action of the stage is under way.
  virtual bool computing() const = 0;
  // Lets go of the links: nothing is reported from now on, and the stage may be destroyed on
  // another thread.
  virtual void Detach() = 0;
};

// The parts that a host is made from; all outlive it.
struct StageEnvironment {
  EventLoop* loop = nullptr;
  BufferPool* pool = nullptr;
  Transport* transport = nullptr;
  FrameLimits* limits = nullptr;
  ReplicaStore* replicas = nullptr;
  // A stage has less than a processor of its own: a thread more gets none of it.
  bool shares_processor = false;
  MakeLaneFn make_lane = nullptr;
  EnergyCounter* energy = nullptr;  // null: energy by the model
  SpanLog* spans = nullptr;         // null: what the lanes do is not kept
};
using MakeEngineFn = std::function<absl::StatusOr<std::unique_ptr<StageEngine>>(
    const StageExecutorOptions& options)>;

// Compiles the stage, loads its state and makes its host. InvalidArgument / Unimplemented: `stage`
// does not fit this worker or is broken.
absl::StatusOr<std::unique_ptr<StageHost>> MakeStageHost(const PrepareStage& stage,
                                                         const StageEnvironment& environment,
                                                         const MakeEngineFn& make_engine,
                                                         StageEvents events);

}  // namespace runnel
