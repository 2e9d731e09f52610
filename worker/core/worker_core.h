#pragma once

// The worker's control half: dials central, offers its device, and runs the stage that central
// gives it, until it is released. It has no thread and no clock and never waits: events come on an
// event loop, long work goes to lanes. Daemon (daemon.h) runs it on a thread; the simulator of the
// whole cluster runs the same object in virtual time.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/backend_options.h"
#include "proto/base/log.h"
#include "proto/transport/control/control_channel.h"
#include "worker/core/data_endpoint.h"
#include "worker/core/held_stages.h"
#include "worker/core/workshop.h"
#include "worker/host/span_log.h"
#include "worker/host/stage_host.h"
#include "worker/membership/central_lives.h"

namespace runnel {

struct WorkerOptions {
  std::string central_address;
  std::string name;
  // Address of data links. Empty: any free port at the address by which this host reaches central.
  std::string listen_address = {};
  // Address where others dial the data links, if it differs from listen_address. Empty: it does
  // not.
  std::string advertised_address = {};
  std::vector<std::string> backends;
  // Meaning of central's "auto" on this device; "auto": the best backend that has all parts.
  std::string backend = "auto";
  std::vector<std::string> recipes;
  std::vector<CodecFamily> codecs;
  std::string secret;             // WorkerHello's
  int64_t memory_bytes = 0;       // WorkerHello's
  std::string device_id = {};     // WorkerHello's
  int64_t incarnation = 0;        // WorkerHello's
  std::string device_class = {};  // WorkerHello's
  std::string site = {};          // WorkerHello's
  std::string limits = {};        // WorkerHello's
  int threads = 1;
  int64_t device_memory_bytes = 0;  // BackendSettings'
  BackendOptions backend_options = {};
  int64_t connect_timeout_ms = 30'000;
  // Folder for what this worker measures of itself; empty: nothing is kept. device: as
  // DescribeDevice says.
  std::string state_folder = {};
  std::string device = {};
  double processors = 0;  // SelfMeasurement's
};

class WorkerCore {
 public:
  // All are borrowed and outlive the worker.
  struct Parts {
    EventLoop* loop = nullptr;
    Transport* transport = nullptr;
    ControlTransport* control = nullptr;
    Logger* logger = nullptr;
    CentralLives* lives = nullptr;  // null: every central is taken for the latest
    DeviceArithmetic* arithmetic = nullptr;
    MakeLaneFn make_lane = nullptr;
    EnergyCounter* energy = nullptr;  // null: energy by the model
    // What the device and the process show of themselves; null: nothing. On the loop.
    std::function<void(Telemetry&)> fill_device = nullptr;
  };
  using EndFn = std::function<void(const absl::Status&)>;

  WorkerCore(WorkerOptions options, Parts parts);
  // When the loop runs none of its tasks any more.
  ~WorkerCore();
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  // Dials central, as long as the control transport does. on_end comes on the loop, once: central
  // has released the worker (OK), refused it for good (FailedPrecondition, its reason) or for now
  // (ResourceExhausted), is gone or is an earlier life of the run's central (Unavailable). Errors,
  // after which on_end does not come: the listener or central could not be had.
  absl::Status Start(EndFn on_end);
  // Asks central to do without this worker; its release is the end. At once if the worker does not
  // take part. reason: for people; empty: the worker was told to end. Any thread.
  void Leave(std::string reason = "");
  // Ends. Any thread.
  void Stop();
  // Central has said that the worker takes part. On the loop, or when it no longer runs.
  bool welcomed() const { return welcomed_; }
  // The stage that it has; null: none.
  const StageHost* stage() const { return stages_.current(); }

 private:
  class Observer;

  absl::Status Connect();
  WorkerHello Hello();
  // Messages are carried out one after the other: while the workshop is at one, those behind it
  // wait, and only what ends or takes back something overtakes them.
  void Handle(CentralMessage message);
  void CarryOut(CentralMessage& message);
  void CarryOutWaiting();
  void On(const Welcome& welcome);
  void On(const Awaiting& awaiting);
  void On(const Refused& refused);
  void On(const ProbePiece& piece);
  void On(ProfileRequest request);
  // Whether a message about this plan comes too late, or is about one that does not hold here yet.
  bool IsAboutAnother(Generation generation) const { return generation != stages_.generation(); }
  void On(ProgramRequest request);
  void On(PrepareStage stage);
  void On(const RunUntil& grant);
  void On(const SnapshotRequest& request);
  void On(const EvaluateRequest& request);
  void On(const DryRunRequest& request);
  void On(const Replicate& request);
  void On(const CommitReplicas& commit) { replicas_.Commit(commit.id); }
  void On(const FetchLayers& request);
  void On(const CommitPlan& commit);
  void On(const AbortPlan& abort) { stages_.TakeBack(abort.generation); }
  void On(const RelayWanted& wanted) { endpoint_.routes().Answer(wanted.ticket, wanted.from); }
  void On(const TraceRequest& request);
  void On(const Release&);
  StageEvents Events(Generation generation);
  // Where a state is taken from, on the workshop's lane, and the plan that has failed if it cannot be.
  struct StateSource {
    std::function<absl::StatusOr<ModelState>()> take;
    Generation generation;
  };
  StateSource OwnState() const;
  // Sends what `message` makes of a state. generation: that a failure is about, if it is too large
  // for one message.
  void SendState(Generation generation, StateSource source,
                 std::function<WorkerMessage(ModelState)> message);
  void Send(WorkerMessage message);
  void SendTelemetry();
  void SendHeartbeat();
  void Tick();
  // Reports a failure. unfit: the request does not fit this worker, and a retry would not help.
  void Failed(Generation generation, const absl::Status& status, bool unfit = false);
  // Central asked for what only a stage can do, and there is none.
  void FailWithoutStage(absl::string_view request);
  void End(const absl::Status& status);

  WorkerOptions options_;
  Parts parts_;
  EventLoop& loop_;
  EndFn on_end_;
  BufferPool pool_;
  DataEndpoint endpoint_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<WorkerControl> control_;
  ReplicaStore replicas_;  // outlives the stages, and so does
  SpanLog spans_;
  std::unique_ptr<Workshop> workshop_;
  std::deque<CentralMessage> waiting_;  // messages for the workshop
  HeldStages stages_;
  bool welcomed_ = false;
  bool ended_ = false;
};

}  // namespace runnel
