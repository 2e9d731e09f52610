#pragma once

// The worker: dials central, offers what it has, runs the stage that it is given, until it is
// released.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/base/log.h"
#include "proto/base/refusal_log.h"
#include "proto/transport/control/control_channel.h"
#include "worker/membership/central_lives.h"
#include "worker/stage_host.h"
#include "worker/workshop.h"

namespace runnel {

struct DaemonOptions {
  std::string central_address;
  std::string name;
  // Of data links. Empty: any free port at the address by which this host reaches central.
  std::string listen_address = {};
  std::vector<std::string> backends;
  // What central's "auto" stands for here; "auto": the best one that has all that is needed.
  std::string backend = "auto";
  std::vector<std::string> recipes;
  std::vector<CodecFamily> codecs;
  std::string secret;          // WorkerHello's
  int64_t memory_bytes = 0;    // WorkerHello's
  std::string device_id = {};  // WorkerHello's
  int64_t incarnation = 0;     // WorkerHello's
  int threads = 1;
  int64_t connect_timeout_ms = 30'000;
  // Folder for what this worker measures of itself; empty: nothing is kept. device: as
  // DescribeDevice says.
  std::string state_folder = {};
  std::string device = {};
};

class Daemon {
 public:
  // All are borrowed and outlive the daemon. `backend` is made by the name that central asks for.
  struct Parts {
    Transport* transport = nullptr;
    ControlTransport* control = nullptr;
    const Clock* clock = nullptr;
    Logger* logger = nullptr;
    CentralLives* lives = nullptr;  // null: every central is taken for the latest
  };

  Daemon(DaemonOptions options, Parts parts);
  ~Daemon();

  // Runs until central releases the worker (OK), refuses it for good (FailedPrecondition, its
  // reason) or for now (ResourceExhausted), is gone or is an earlier life of the run's central
  // (Unavailable). Other errors: the listener or central could not be had.
  absl::Status Run();
  // Asks central to do without this worker; its release ends Run. At once if the worker does not
  // take part. Any thread.
  void Leave();
  // Ends Run. Any thread.
  void Stop();
  // Central has said that the worker takes part. After Run.
  bool welcomed() const { return welcomed_; }

 private:
  class Observer;

  absl::Status CheckListenAddress() const;
  absl::Status ListenTowardsCentral();
  absl::Status Connect();
  WorkerHello Hello() const;
  // Messages are carried out one after the other: while the workshop is at one, those behind it
  // wait, and only what ends or takes back something overtakes them.
  void Handle(CentralMessage message);
  void CarryOut(CentralMessage& message);
  void CarryOutWaiting();
  void On(const Welcome& welcome);
  void On(const Refused& refused);
  void On(const ProbePiece& piece);
  void On(ProfileRequest request);
  // Whether a message about this plan comes too late, or is about one that does not hold here yet.
  bool IsAboutAnother(Generation generation) const { return generation != generation_; }
  void On(PrepareStage stage);
  void On(const RunUntil& grant);
  void On(const SnapshotRequest& request);
  void On(const EvaluateRequest& request);
  void On(const Replicate& request);
  void On(const CommitReplicas& commit) { replicas_.Commit(commit.id); }
  void On(const FetchLayers& request);
  void On(const CommitPlan& commit);
  void On(const AbortPlan& abort);
  void On(const Release&);
  StageEvents Events(Generation generation);
  // Sends what `message` makes of the stage's state.
  void SendState(std::function<WorkerMessage(ModelState)> message);
  void DropStage();
  void DropAside();
  void Send(WorkerMessage message);
  void SendTelemetry();
  void SendHeartbeat();
  void Tick();
  // unfit: what was asked for does not fit this worker, whatever is tried.
  void Failed(Generation generation, const absl::Status& status, bool unfit = false);
  // Central asked for what only a stage can do, and there is none.
  void FailWithoutStage(absl::string_view request);
  void End(absl::Status status);

  DaemonOptions options_;
  Parts parts_;
  EventLoop loop_;
  BufferPool pool_;
  FrameLimits limits_;
  RefusalLog refusals_;
  std::unique_ptr<LinkAcceptor> acceptor_;
  std::unique_ptr<Observer> observer_;
  std::unique_ptr<WorkerControl> control_;
  ReplicaStore replicas_;  // outlives the stages
  std::unique_ptr<Workshop> workshop_;
  std::deque<CentralMessage> waiting_;  // for the workshop
  std::unique_ptr<StageHost> host_;
  Generation generation_;
  // A stage of the next plan, until its CommitPlan.
  struct Aside {
    std::unique_ptr<StageHost> host;
    Generation generation;
    LinkExpectation expectation;
    LinkShaping shaping;
  };
  std::optional<Aside> aside_;
  Generation aborted_;  // plans up to this one that were not committed are taken back
  absl::Status result_;
  bool welcomed_ = false;
  bool ended_ = false;
};

}  // namespace runnel
