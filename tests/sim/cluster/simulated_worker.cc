#include "tests/sim/cluster/simulated_worker.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec.h"
#include "proto/base/status_macros.h"
#include "worker/replication/replica_sender.h"

namespace runnel {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr int64_t kCodecNs = 100'000;

// Takes virtual time for each task, which happens at its end.
class VirtualLane final : public Lane {
 public:
  using TakesFn = std::function<int64_t()>;
  VirtualLane(EventLoop* loop, TakesFn takes) : loop_(loop), core_(std::make_shared<Core>()) {
    core_->takes = std::move(takes);
  }
  ~VirtualLane() override {
    core_->ended = true;
    const auto tasks = std::exchange(core_->tasks, {});
  }
  void Post(Task task) override {
    core_->tasks.push_back(std::move(task));
    if (core_->tasks.size() == 1 && !core_->running) Begin(loop_, core_);
  }

 private:
  struct Core {
    TakesFn takes;
    std::deque<Task> tasks;
    bool running = false;
    bool ended = false;
  };
  static void Begin(EventLoop* loop, const std::shared_ptr<Core>& core) {
    core->running = true;
    loop->PostAfter(core->takes(), [loop, core] {
      if (core->ended) return;
      Task task = std::move(core->tasks.front());
      core->tasks.pop_front();
      task();
      task = nullptr;
      core->running = false;
      if (!core->ended && !core->tasks.empty()) Begin(loop, core);
    });
  }

  EventLoop* const loop_;
  const std::shared_ptr<Core> core_;
};

// Of a device behind a router: it dials, and nobody reaches where it listens.
class BehindRouter final : public Transport {
 public:
  explicit BehindRouter(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, AcceptFn) override {
    class Nowhere final : public Listener {
     public:
      explicit Nowhere(std::string address) : address_(std::move(address)) {}
      std::string address() const override { return address_; }

     private:
      const std::string address_;
    };
    return std::make_unique<Nowhere>(
        absl::StrCat(address.substr(0, address.rfind(':')), ":", ++port_));
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget& to,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping) override {
    return inner_->Dial(to, observer, shaping);
  }

 private:
  const std::unique_ptr<Transport> inner_;
  int port_ = 1024;
};

// Copies that leave on connections that this device dials say that nothing is committed.
class ForgetsCommits final : public Transport {
 public:
  explicit ForgetsCommits(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                   AcceptFn accept) override {
    return inner_->Listen(address, std::move(accept));
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget& to,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping) override {
    RUNNEL_ASSIGN_OR_RETURN(std::shared_ptr<Connection> dialled,
                            inner_->Dial(to, observer, shaping));
    return std::make_shared<Dialled>(std::move(dialled));
  }

 private:
  class Dialled final : public Connection {
   public:
    explicit Dialled(std::shared_ptr<Connection> inner) : inner_(std::move(inner)) {}
    absl::Status Send(const Frame& frame) override {
      if (frame.header.kind != FrameKind::kReplica) return inner_->Send(frame);
      Frame forgetful = frame;
      forgetful.payload = Payload::CopyOf(frame.payload.bytes());
      PieceHead head = *ReadPieceHead(frame);
      head.committed = {};
      WritePieceHead(head, forgetful.payload.mutable_bytes());
      SealFrame(forgetful);
      return inner_->Send(forgetful);
    }
    void Close() override { inner_->Close(); }
    int64_t queued_bytes() const override { return inner_->queued_bytes(); }
    std::string peer() const override { return inner_->peer(); }

   private:
    const std::shared_ptr<Connection> inner_;
  };

  const std::unique_ptr<Transport> inner_;
};

std::unique_ptr<Transport> TransportOf(World* world, const std::string& name, bool is_behind) {
  std::unique_ptr<Transport> transport = world->network.NewTransport(name);
  if (world->Has(PlantedBug::kCommitOvertaken))
    transport = std::make_unique<ForgetsCommits>(std::move(transport));
  if (!is_behind) return transport;
  return std::make_unique<BehindRouter>(std::move(transport));
}

}  // namespace

class SimulatedWorker::Arithmetic final : public DeviceArithmetic {
 public:
  Arithmetic(World* world, uint64_t draws) : world_(*world), draws_(draws) {}

  absl::Status Prepare() override { return absl::OkStatus(); }
  void DoWithout(const std::string&) override {}
  std::string numerics_class() const override { return "hash chain"; }
  absl::StatusOr<std::vector<RangeTime>> Profile(
      const ProfileRequest& request, const ProfileOptions& options,
      const std::function<void(double share)>& on_progress) override {
    if (world_.Uniform(draws_) < world_.scenario.measure_fails)
      return absl::ResourceExhaustedError("the device was too busy to measure");
    if (on_progress) on_progress(0.5);
    const size_t ranges =
        options.ranges.empty() ? request.model.layers.size() : options.ranges.size();
    std::vector<RangeTime> times(ranges);
    for (RangeTime& time : times) time.seconds = 1e-3 * (1 + world_.Uniform(draws_));
    return times;
  }
  absl::StatusOr<ProgramListing> List(const ProgramRequest&) override {
    return absl::UnimplementedError("a hash chain has no program");
  }
  absl::StatusOr<std::unique_ptr<StageEngine>> MakeEngine(const std::string&,
                                                          const StageExecutorOptions& options,
                                                          BufferPool*) override {
    HashEngine::Options engine;
    engine.first_layer = options.first_layer;
    engine.last_layer = options.last_layer;
    engine.has_loss = options.last_layer + 1 == options.model.layer_count();
    engine.most_in_flight = options.cap;
    engine.seed = options.training.seed;
    engine.zeros = &world_.zeros;
    engine.bugs = {world_.Has(PlantedBug::kForgottenOptimizerState),
                   world_.Has(PlantedBug::kAccumulatorKept)};
    return std::make_unique<HashEngine>(engine, &world_.engines);
  }

 private:
  World& world_;
  const uint64_t draws_;
};

struct SimulatedWorker::Process {
  Process(World* world, uint64_t draws) : loop(&world->network), arithmetic(world, draws) {}

  VirtualLoop loop;  // of the process: between its runs
  CentralLives lives;
  RejoinPolicy rejoin{/*once=*/false};
  Arithmetic arithmetic;
  int stops = 0;
  // Of one run, or of one try.
  std::unique_ptr<VirtualLoop> run_loop;
  std::unique_ptr<WorkerCore> core;
};

SimulatedWorker::SimulatedWorker(World* world, std::string name, int number,
                                 std::string central_address, bool is_behind)
    : world_(*world),
      name_(std::move(name)),
      central_address_(std::move(central_address)),
      draws_(kFirstWorkerDraws + static_cast<uint64_t>(number)),
      transport_(TransportOf(world, name_, is_behind)),
      control_(world->control.NewTransport(name_, absl::StrCat("10.0.0.", number + 10))),
      logger_(world, name_) {
  if (const int sites = world_.scenario.sites; sites > 0)
    site_ = absl::StrCat("site-", number % sites);
  world_.nodes[name_] = NodeState::kDown;
}

SimulatedWorker::~SimulatedWorker() { Kill(); }

void SimulatedWorker::Start() {
  if (runs()) return;
  ++starts_;
  world_.Record(absl::StrCat(name_, " starts, process ", starts_));
  world_.nodes[name_] = NodeState::kUp;
  process_ = std::make_unique<Process>(&world_, draws_);
  process_->loop.Post([this] { Dial(); });
}

void SimulatedWorker::Dial() {
  WorkerOptions options;
  options.central_address = central_address_;
  options.name = name_;
  options.recipes = {"fp32"};
  options.memory_bytes = int64_t{1} << 30;
  options.device_id = name_;
  options.device_class = "a board";
  options.site = site_;
  options.incarnation = starts_;
  process_->run_loop = std::make_unique<VirtualLoop>(&world_.network);
  process_->run_loop->SetFrozen(frozen_);
  WorkerCore::Parts parts;
  parts.loop = process_->run_loop.get();
  parts.transport = transport_.get();
  parts.control = control_.get();
  parts.logger = &logger_;
  parts.lives = &process_->lives;
  parts.arithmetic = &process_->arithmetic;
  parts.make_lane = [this](LaneKind kind) {
    const auto takes = [this, kind]() -> int64_t {
      const Scenario& scenario = world_.scenario;
      if (kind == LaneKind::kCodec) return kCodecNs;
      return world_.DrawNs(kind == LaneKind::kCompute ? scenario.compute_ms : scenario.workshop_ms,
                           kNsPerMs, draws_);
    };
    return std::make_unique<VirtualLane>(process_->run_loop.get(), takes);
  };
  process_->core = std::make_unique<WorkerCore>(std::move(options), parts);
  // The end comes from within the worker, which goes then.
  const auto end = [this](const absl::Status& status) {
    process_->loop.Post([this, status] { EndRun(status); });
  };
  if (const absl::Status status = process_->core->Start(end); !status.ok()) end(status);
}

void SimulatedWorker::EndRun(const absl::Status& status) {
  const bool welcomed = process_->core->welcomed();
  process_->run_loop->End();
  process_->core.reset();
  if (process_->stops > 0) return Exit(absl::OkStatus());
  const RejoinPolicy::Next next = process_->rejoin.After(status, welcomed);
  if (!next.line.empty()) logger_.Log(Severity::kInfo, next.line);
  if (next.ends) return Exit(next.status);
  process_->loop.PostAfter(static_cast<int64_t>(static_cast<double>(next.pause_ms) * kNsPerMs),
                           [this] { Dial(); });
}

// On the process's loop, which goes with it.
void SimulatedWorker::Exit(const absl::Status& status) {
  world_.Record(absl::StrCat(name_, " ends: ", status.message()));
  world_.network.ScheduleAt(world_.now_ns(), [this, process = starts_] {
    if (runs() && starts_ == process) Kill();
  });
}

void SimulatedWorker::Kill() {
  if (!runs()) return;
  world_.nodes[name_] = NodeState::kDown;
  process_->loop.End();
  if (process_->run_loop != nullptr) process_->run_loop->End();
  world_.control.LoseNode(name_);
  world_.network.LoseNode(name_);
  if (frozen_) SetFrozen(false);
  process_->core.reset();
  process_.reset();
}

void SimulatedWorker::SetFrozen(bool frozen) {
  if (frozen_ == frozen || !runs()) return;
  frozen_ = frozen;
  if (world_.nodes[name_] != NodeState::kDown)
    world_.nodes[name_] = frozen ? NodeState::kFrozen : NodeState::kUp;
  process_->loop.SetFrozen(frozen);
  if (process_->run_loop != nullptr) process_->run_loop->SetFrozen(frozen);
  world_.network.SetCut(name_, frozen);
  world_.control.Flush();
}

bool SimulatedWorker::leaves() const { return runs() && process_->stops > 0; }

void SimulatedWorker::Leave() {
  if (!runs()) return;
  world_.Record(absl::StrCat(name_, " is told to leave"));
  ++process_->stops;
  if (process_->core == nullptr || world_.Has(PlantedBug::kLeavesAtOnce))
    return Exit(absl::OkStatus());
  if (process_->stops == 1) {
    process_->core->Leave();
  } else {
    process_->core->Stop();
  }
}

}  // namespace runnel
