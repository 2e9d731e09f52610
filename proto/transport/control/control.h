#pragma once

// The control plane's vocabulary: what central and its workers tell each other over a worker's one
// control stream (control.proto is its wire form, control_convert.h the way between). Messages of
// one direction arrive in order, once, also over several connections; only of heartbeats some may
// be missing.
//
// `generation` is that of the plan that a message is about. Who gets a message about another plan
// than his own drops it: it was on its way when that plan came to its end.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "proto/base/figures/class_counts.h"
#include "proto/base/figures/span.h"
#include "proto/base/figures/telemetry.h"
#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"
#include "proto/base/plan/device_costs.h"
#include "proto/base/plan/layer_range.h"
#include "proto/base/plan/plan.h"
#include "proto/base/plan/processor_facts.h"
#include "proto/base/plan/program_listing.h"
#include "proto/base/training/codecs/codec_id.h"
#include "proto/base/training/codecs/gradient_noise.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"
#include "proto/transport/link/link_target.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Both ends must speak the same; a worker of another version is refused with a message that says
// so.
inline constexpr int32_t kProtocolVersion = 33;
inline constexpr int64_t kMaxProfileRanges = 1024;
inline constexpr int64_t kMaxCostCodecs = 8;
// Between two heartbeats of a worker.
inline constexpr int64_t kHeartbeatNs = 250'000'000;
// A profile's processor_share is at least this.
inline constexpr double kLeastProcessorShare = 1e-3;
// A computing thread that gets less of a processor was held back, and so is what runs beside it.
inline constexpr double kWholeProcessor = 0.9;
// Of a train of ProbePieces.
inline constexpr int64_t kMaxProbePieces = 64;
inline constexpr int64_t kMaxProbePieceBytes = 64 << 10;
// Environment variable by which central gives a worker that it starts its secret.
inline constexpr char kWorkerSecretVariable[] = "RUNNEL_WORKER_SECRET";

// The stages' states of a barrier, as the stages of a plan copied them. Later barriers compare
// greater.
struct ReplicaId {
  Generation generation;  // of the plan
  Sequence sequence;      // of the barrier
  friend auto operator<=>(const ReplicaId&, const ReplicaId&) = default;
};

// ---- both ways

// A piece of a train (probe_train.h). Central sends one; the worker answers with WayMeasured and a
// train of answer_bytes. A train of one piece is a ping: the worker answers with another, at once.
struct ProbePiece {
  int64_t index = 0;
  int64_t count = 0;         // pieces of the train
  std::string padding;       // at most kMaxProbePieceBytes
  int64_t answer_bytes = 0;  // 0: no train comes back
  int64_t arrived_ns = 0;    // by the receiver's clock; not on the wire

  bool is_ping() const { return count == 1; }
};

// ---- worker -> central

// First message: who it is and what it can do.
struct WorkerHello {
  int32_t protocol_version = kProtocolVersion;
  std::string name;          // unique among the workers of a run; as CheckWorkerName wants it
  std::string data_address;  // where its data listener is
  std::string numerics_class;
  std::vector<std::string> backends;
  std::vector<std::string> recipes;
  std::vector<CodecFamily> codecs;
  // What central gave this worker when it started it; empty: somebody else started it.
  std::string secret = {};
  // That the worker and its stage may take; 0: not known. Workers of one host share it.
  int64_t memory_bytes = 0;
  // The same whenever this worker is started on its device, and no other worker's; empty: not
  // known.
  std::string device_id = {};
  // Of this process: a worker that is started again has a higher one. 0: not known.
  int64_t incarnation = 0;
  // What its stages compute on where central leaves it open: "auto", "cpu", "cpu,opencl".
  std::string backend = "auto";
  std::vector<ProcessorFacts> processor_list = {};  // at most kMaxProcessorFacts
  // What the speed of its stages depends on, beside what it computes: workers with the same text
  // are taken for equally fast until one of them shows otherwise. Empty: like no other.
  std::string device_class = {};
  // What its backends were told, as BackendOptions::text; empty: nothing.
  std::string backend_options = {};
  // Devices of one site may be lost together (a power strip, an access point), as CheckWorkerName
  // wants it; empty: not known.
  std::string site = {};
  // Limits of its owner, for people: "battery 20 % or more, 22:00 to 7:00"; empty: none.
  std::string limits = {};
};

// What a worker is at.
enum class WorkerPhase : uint8_t {
  kIdle,         // nothing of its own: it stands at a barrier, waits for a neighbour, has no stage
  kMeasuring,    // progress: millionths of the profile
  kPreparing,    // compiles a stage and loads its state
  kHandingOver,  // copies its state and makes messages of it
  kTraining,     // an action of its stage computes; progress: actions done
};

// That the worker lives, sent every kHeartbeatNs from a loop that never computes.
struct Heartbeat {
  WorkerPhase phase = WorkerPhase::kIdle;
  int64_t progress = 0;    // in this phase; does not fall while the phase lasts
  int64_t arrived_ns = 0;  // by the receiver's clock; not on the wire
  int64_t clock_ns = 0;    // when it was sent, by the worker's monotonic clock; 0: not known
};

// Answer to ProfileRequest, by range as asked: seconds of forward, backward and update.
struct ProfileReport {
  std::vector<double> layer_seconds;  // medians
  std::vector<double> spreads;        // distance between the quartiles over the median
  // What the computing thread got of a processor meanwhile, (0, 1]: less where a quota or others
  // take it away.
  double processor_share = 1;
  // Not measured now: what this worker answered to the same request in an earlier run.
  bool kept = false;
  DeviceCosts costs = {};
  Generation generation = {};       // the request's
  std::string backend = {};         // that was measured: "cpu", "cpu,opencl"; empty: not known
  std::string choice = {};          // why it is this one, one line; empty: it was asked for
  std::string numerics_class = {};  // of that backend; empty: not known
};

// While a profile is measured, a few times a second: how much of it is done, [0, 1].
struct ProfileProgress {
  double share = 0;
  Generation generation = {};  // the request's
};

// What the worker saw of the last train.
struct WayMeasured {
  double bytes_per_second = 0;  // 0: the pieces came all at once
  int64_t ns = 0;               // from the first piece to the last
};

// Answer to a ProfileRequest that could not be met. A stage that the worker has goes on.
struct ProfileFailed {
  std::string reason;
  bool unfit = false;          // as StageFailed's
  Generation generation = {};  // the request's
};

// The stage has taken over and its links are connected.
struct StageReady {
  Generation generation;
};

// Answer to FetchLayers: the states of the layers that were asked for, and of the stage's encoders.
struct LayersFetched {
  Generation generation;
  ModelState state;
};

// Answer to PrepareStage: the stage is compiled and its state loaded.
struct StagePrepared {
  Generation generation;
  std::string numerics_class = {};  // of the backend that computes the stage
};

// All micro-batches below `sequence` are done at this stage and its lanes are empty.
struct BarrierReached {
  Generation generation;
  Sequence sequence;
  int64_t arrived_ns = 0;  // by the receiver's clock; not on the wire
};

// Answer to SnapshotRequest.
struct Snapshot {
  Generation generation;
  Sequence sequence;
  ModelState state;
  int64_t arrived_ns = 0;  // by the receiver's clock; not on the wire
};

// Answer to Replicate: the stage has its copy, and its neighbours on the way to the holders have all
// of it.
struct Replicated {
  ReplicaId id;
  int64_t stall_ns = 0;  // that the stage stood while it copied
  int64_t took_ns = 0;   // from then until the neighbours had all of it
  int64_t bytes = 0;     // that went to them
  // Of a holder that is no neighbour: it has the copy of this stage. Then the others are 0.
  std::optional<int> kept_of = {};
};

// From the stage with the loss: the evaluation that began at `first` is done.
struct EvaluationDone {
  Generation generation;
  Sequence first;
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t samples = 0;
  ClassCounts counts = {};
  int64_t arrived_ns = 0;  // by the receiver's clock; not on the wire
};

// From each stage: the dry run whose frames began at `first` is done. Sums of a gradient that is not
// finite are not.
struct DryRunDone {
  Generation generation;
  Sequence first;
  GradientSums sums;
  int64_t arrived_ns = 0;  // by the receiver's clock; not on the wire
};

// Where a value that is no finite number came from, as far as a stage can tell.
enum class NotFinite : uint8_t {
  kNothing,     // there is none
  kOwn,         // its input was finite, what it made of it is not
  kUpstream,    // the stage before sent it
  kDownstream,  // the next stage sent it
};

// The worker cannot go on with its stage, or cannot prepare the next one: a NaN at an encoder, a
// link that does not come back, a bad message.
struct StageFailed {
  Generation generation;
  std::string reason;
  // What was asked for does not fit this worker (a model that the recipe cannot train, a backend
  // without an instruction): the user's to change, no second try would.
  bool unfit = false;
  // The worker is whole, but the device of this backend is lost to it, or has no room for the
  // stage. It computes on its CPU from now on. Empty: nothing of the kind.
  std::string lost_backend = {};
  NotFinite not_finite = NotFinite::kNothing;
};

// The worker was told to end (SIGTERM), or a limit of its owner holds it. It trains on until a plan
// without it holds; then central releases it.
struct Leaving {
  std::string reason = {};  // for people; empty: it was told to end
};

// Answer to ProgramRequest.
struct ProgramReport {
  Generation generation;  // the request's
  ProgramListing listing;
  std::string failure = {};  // why there is no listing; empty: there is one
};

// What the worker's backends compute on, from now on: something was opened since its hello.
struct ProcessorList {
  std::vector<ProcessorFacts> processors;  // at most kMaxProcessorFacts
};

// Answer to TraceRequest, when the window is over.
struct TraceReport {
  std::vector<Span> spans;  // at most kMaxSpans, as they ended
  int64_t left_out = 0;     // that ended after so many
  int64_t id = 0;           // the request's
};

using WorkerMessage =
    std::variant<WorkerHello, ProfileReport, StageReady, BarrierReached, Snapshot, EvaluationDone,
                 Telemetry, StageFailed, LayersFetched, StagePrepared, ProfileFailed,
                 ProfileProgress, WayMeasured, ProbePiece, Leaving, Heartbeat, Replicated,
                 ProgramReport, ProcessorList, DryRunDone, TraceReport>;

// ---- central -> worker

// The worker takes part. A central that goes on with a run after another one has a higher life than
// that one: a worker that has seen both takes nothing from the lower one any more.
struct Welcome {
  DeviceId device;
  std::string run = {};  // the same in all lives of a run
  int64_t life = 0;
};

// The worker is taken, and the run begins when others are here too; said again as they come and go.
struct Awaiting {
  int64_t here = 0;    // workers that dialled in
  int64_t wanted = 0;  // 0: no run is under way; Release sends the worker away when one begins
};

// Central does not want this worker.
struct Refused {
  std::string reason;
  // It never will, as both are now: the worker ends with this line and exit code 2. Else the worker
  // may try again: a seat becomes free, or the next run takes it.
  bool is_final = true;
};

struct ProfileRequest {
  ModelSpec model;
  std::string recipe;
  std::string backend;
  int64_t micro_batch_size = 0;
  int64_t repetitions = 0;
  std::vector<LayerRange> ranges = {};  // empty: each layer by itself; at most kMaxProfileRanges
  double burst_ms = 0;                  // one measurement repeats the work for at least this long
  double nominal_step_ns = 0;           // above 0: times at this clock, as ProfileOptions says
  std::vector<int64_t> in_flight = {};  // by range, as ProfileOptions says; empty: one each
  double enough_ms = 0;                 // as ProfileOptions says; 0: all repetitions
  int64_t neighbours = 0;               // workers of its host that measure at the same time
  bool accepts_kept = false;            // what the worker measured in an earlier run will do
  // Of which coding is measured, at most kMaxCostCodecs; empty: neither coding nor the transport
  // is.
  std::vector<std::string> cost_codecs = {};
  Generation generation = {};  // of the plan that holds; 0: none does yet
};

// Make a stage of the next plan beside the one that stands at the barrier, if there is one; it
// takes over with CommitPlan. `state` has all encoders, and those layers that the worker's own
// stage has not; tensors without bytes are zero (model_state.h).
struct PrepareStage {
  Plan plan;
  int stage = 0;
  bool plain_loop = false;  // no pipeline: the whole model in one loop (--local-workers 0)
  ModelSpec model;
  TrainingSettings training;
  int64_t eval_samples = 0;
  std::string recipe;
  std::string backend;
  // Of its data links: what a dialling end shows, what this stage answers, who alone is the stage
  // before (Connection::peer; empty: nobody), and the next stage (without an address: none).
  std::string link_token;
  std::string link_greeting;
  std::string upstream_peer;
  LinkTarget downstream;
  LinkShaping shaping;                       // of what this stage sends to its neighbours
  Sequence first_sequence;                   // training begins here
  std::vector<TrainingChange> changes = {};  // decided so far
  // The layers are as they are drawn from the seed (initial_state.h): `state` has none of them.
  bool draws_state = false;
  // Of a recovery: the stage that the worker has lost its neighbours and is of no use any more, so
  // it goes first. `state` has all layers, except those that the worker has of `replica`.
  bool starts_over = false;
  std::optional<ReplicaId> replica = {};
  ModelState state;
};

// Train on micro-batches below `limit`; a barrier. `changes` were decided where the stage stands and
// hold from there.
struct RunUntil {
  Generation generation;
  Sequence limit;
  std::vector<TrainingChange> changes = {};
};

// Report the state as it is now, at a barrier. weights_only: slots come without its bytes, and
// encoder states stay out; that is enough to evaluate.
struct SnapshotRequest {
  Generation generation;
  Sequence sequence;
  bool weights_only = false;
};

// At a barrier, ahead of the grant: copy the state as it is now and keep it; send it to the stages
// that are to hold it, while training goes on. Stages between keep it too. One at a time.
struct Replicate {
  ReplicaId id;
  std::vector<int> holders = {};  // stages, at most one on each side; none: the stage is alone
};
// All stages have answered: copies of barriers before it are of no more use.
struct CommitReplicas {
  ReplicaId id;
};

// How a plan comes to hold, the first one and every later one, at a barrier and in two phases.
// First each stage hands over the layers that others will have (the first plan has none of this);
// then the new stages are prepared aside. When all are, CommitPlan puts them in the old ones' place
// and they dial each other; else AbortPlan drops them and the old ones go on. A recovery does the
// same, from a state that central has or from the workers' copies of a barrier (`replica`: of these
// the layers are asked for, with the encoders that belong to them), and nothing old goes on.
// `generation` is the new plan's. At most kMaxProfileRanges ranges.
struct FetchLayers {
  Generation generation;
  std::vector<LayerRange> ranges;
  std::optional<ReplicaId> replica = {};
};
struct CommitPlan {
  Generation generation;
};
struct AbortPlan {
  Generation generation;
};

// Somebody cannot dial this worker's data port and waits at central's: the worker dials central,
// shows the ticket, and has a data connection with him. The ticket counts once, for some seconds.
struct RelayWanted {
  std::string ticket;
  std::string from;  // who waits (Connection::peer), as his certificate says; empty: there is none
};

// Evaluate `micro_batches` micro-batches from evaluation sequence `first`. Only at a barrier.
struct EvaluateRequest {
  Generation generation;
  Sequence first;
  int64_t micro_batches = 0;
};

// Send the next micro-batches of the training forth and back without a step, exactly and with the
// codecs that `coded` names (worker/stage/dry_run/stage_dry_run.h); frames are counted from dry
// sequence `first`. Only at a barrier.
struct DryRunRequest {
  Generation generation;
  Sequence first;
  int64_t micro_batches = 0;
  CodedWays coded = {};
};

// What would run on which processor of the device, if these layers were a stage of the plan of this
// generation. Takes some seconds where costs are measured.
struct ProgramRequest {
  Generation generation;
  ModelSpec model;
  std::string recipe;
  std::string backend;
  LayerRange layers;
  int64_t micro_batch_size = 0;
  // Of the stage's order of actions, as the stage that trains would have it.
  bool one_in_flight = false;
  bool defers_weight_gradients = false;
  TrainingSettings training;
};

// The run is over, or goes on without the worker, which has asked to leave: the worker ends, or
// waits for the next run if nobody told it to end.
struct Release {};

// The worker notes from now on, for so long, what its lanes do. Training goes on.
struct TraceRequest {
  int64_t window_ns = 0;  // above 0, at most kMaxTraceNs
  int64_t id = 0;         // another one for each window of a run
};

using CentralMessage =
    std::variant<Welcome, Refused, ProfileRequest, PrepareStage, RunUntil, SnapshotRequest,
                 EvaluateRequest, Release, FetchLayers, CommitPlan, AbortPlan, ProbePiece,
                 Replicate, CommitReplicas, RelayWanted, ProgramRequest, Awaiting, DryRunRequest,
                 TraceRequest>;

}  // namespace runnel
