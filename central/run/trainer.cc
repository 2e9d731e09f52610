#include "central/run/trainer.h"

#include <algorithm>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/records/checkpoint.h"
#include "central/run/trainer_impl.h"
#include "proto/base/status_macros.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr int64_t kTickNs = int64_t{100} * 1000 * 1000;
constexpr int64_t kWorkerGraceMs = 3000;

// Shown by whoever dials a data link. It decides nothing that training depends on, so it may be
// truly random.
std::string NewToken() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

// What lets a local worker speak with those that dial central at `control_address` from elsewhere:
// its neighbours may be any of them. Central itself listens there, so it is allowed.
absl::StatusOr<std::vector<std::string>> NetworkArguments(const std::string& control_address) {
  RUNNEL_ASSIGN_OR_RETURN(Address address, ParseAddress(control_address));
  if (address.is_loopback()) return std::vector<std::string>();
  std::vector<std::string> arguments = {"--insecure-network"};
  address.port = 0;
  if (!address.is_wildcard()) arguments.insert(arguments.end(), {"--listen", address.ToString()});
  return arguments;
}

}  // namespace

Trainer::Impl::Impl(TrainingJob job, TrainerParts parts)
    : job_(std::move(job)), parts_(parts), loop_(parts.clock), token_(NewToken()) {}

Trainer::Impl::~Impl() {
  // Links and streams first, then the processes that they led to.
  feeder_.reset();
  for (const auto& process : processes_) process->Wait(kWorkerGraceMs);
  server_.reset();
  for (const auto& process : processes_) process->Terminate(kWorkerGraceMs);
}

absl::Status Trainer::Impl::StartWorkers() {
  if (!parts_.start_workers) return absl::OkStatus();
  const RunSettings& settings = setup().settings;
  RUNNEL_ASSIGN_OR_RETURN(const std::string binary, FindWorkerBinary());
  const int64_t count = std::max<int64_t>(settings.local_workers, 1);
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<std::string> network,
                          NetworkArguments(server_->address()));
  for (int64_t i = 0; i < count; ++i) {
    WorkerCommand command;
    command.binary = binary;
    command.arguments = {"--central", server_->address(),
                         "--name",    absl::StrFormat("local-%03d", i),
                         "--threads", absl::StrCat(settings.worker_threads)};
    command.arguments.insert(command.arguments.end(), network.begin(), network.end());
    command.threads = settings.worker_threads;
    command.log_level = "warn";
    RUNNEL_ASSIGN_OR_RETURN(auto process, WorkerProcess::Start(command));
    processes_.push_back(std::move(process));
  }
  return absl::OkStatus();
}

bool Trainer::Impl::IsLocal(const WorkerHello& hello) const {
  for (const auto& process : processes_) {
    if (process->pid() == hello.process_id) return true;
  }
  return false;
}

absl::StatusOr<TrainingOutcome> Trainer::Impl::Run() {
  begin_ns_ = parts_.clock->NowNanos();
  RUNNEL_ASSIGN_OR_RETURN(coordinator_, Coordinator::Create(Options()));
  RUNNEL_ASSIGN_OR_RETURN(server_, parts_.control->Listen(setup().settings.listen, this));
  if (setup().settings.workers > 0) {
    parts_.display->Line(absl::StrCat("waiting for ", setup().settings.workers,
                                      " workers: runnel-worker --central ", server_->address()));
  }
  RUNNEL_RETURN_IF_ERROR(StartWorkers());
  loop_.PostAfter(setup().settings.worker_timeout_s * 1'000'000'000, [this] {
    Pump([this](Coordinator& coordinator) {
      coordinator.JoinTimedOut(setup().settings.worker_timeout_s);
    });
  });
  Tick();
  loop_.Run();
  RUNNEL_RETURN_IF_ERROR(result_);
  outcome_.summary = Summarise();
  return std::move(outcome_);
}

void Trainer::Impl::Received(ConnectionId id, const WorkerMessage& message) {
  if (const auto* hello = std::get_if<WorkerHello>(&message)) {
    Pump([&](Coordinator& coordinator) { coordinator.Joined(id, *hello, IsLocal(*hello)); });
    return;
  }
  Pump([&](Coordinator& coordinator) { coordinator.Received(id, message); });
  if (std::holds_alternative<Telemetry>(message)) NoteProgress();
}

void Trainer::Impl::Tick() {
  WatchWorkers();
  if (coordinator_->running()) parts_.display->Update(View());
  loop_.PostAfter(kTickNs, [this] { Tick(); });
}

// A local worker that ends before it joined would be waited for in vain; later its stream tells.
void Trainer::Impl::WatchWorkers() {
  if (!workers_watched_ || coordinator_->ended()) return;
  for (const auto& process : processes_) {
    const std::optional<ProcessExit> exit = process->Poll();
    if (!exit.has_value() || !coordinator_->joining()) continue;
    workers_watched_ = false;
    Abort(absl::UnavailableError(
        absl::StrCat("a local worker ended with ", exit->ToString(), " before it joined")));
    return;
  }
}

void Trainer::Impl::Carry(SendControl effect) {
  const absl::Status status = server_->Send(effect.connection, std::move(effect.message));
  // The stream has ended: OnGone says so in its turn.
  if (!status.ok()) parts_.logger->Log(Severity::kDebug, std::string(status.message()));
}

void Trainer::Impl::Carry(ConnectFeed effect) {
  FeederOptions options;
  options.transport = parts_.transport;
  options.token = effect.link_token;
  options.train = job_.data->train.get();
  options.test = job_.data->test.get();
  options.run_seed = setup().training.seed;
  options.eval_batch_size = setup().training.eval_batch_size;
  feeder_ = std::make_unique<Feeder>(
      &loop_, &pool_, options, coordinator_->batching(), [this](const absl::Status& status) {
        Pump([&](Coordinator& coordinator) { coordinator.FeedFailed(status); });
      });
  feeder_->Connect(effect.generation, effect.first_address, effect.last_address,
                   effect.first_sequence, effect.window);
}

void Trainer::Impl::Carry(FeedUntil effect) {
  training_since_ns_ = parts_.clock->NowNanos();
  processor_time_.Resume();
  feeder_->FeedUntil(effect.limit);
}

void Trainer::Impl::Carry(Persist effect) {
  std::visit([this](const auto& record) { Note(record); }, effect.record);
  if (parts_.journal == nullptr) return;
  if (absl::Status status = parts_.journal->Append(effect.record); !status.ok()) Abort(status);
}

absl::Status Trainer::Impl::SaveCheckpoint(const StateCollected& collected) {
  const RunSettings& settings = setup().settings;
  if (settings.checkpoint_dir.empty()) return absl::OkStatus();
  Checkpoint checkpoint;
  checkpoint.step = collected.step;
  checkpoint.resumable = setup().barriers.IsBarrier(collected.step);
  checkpoint.settings = settings;
  checkpoint.model = setup().model;
  checkpoint.plan = coordinator_->plan();
  checkpoint.training = setup().training;
  for (const Device& device : coordinator_->devices())
    checkpoint.device_names.push_back(device.hello.name);
  checkpoint.state = collected.state;
  checkpoint.journal = settings.journal;
  RUNNEL_ASSIGN_OR_RETURN(const std::string path,
                          WriteCheckpoint(checkpoint, settings.checkpoint_dir));
  if (parts_.journal == nullptr) return absl::OkStatus();
  return parts_.journal->Append(CheckpointWritten{collected.step, path});
}

void Trainer::Impl::Carry(StateCollected effect) {
  if (absl::Status status = SaveCheckpoint(effect); !status.ok()) {
    Abort(status);
    return;
  }
  if (effect.final) outcome_.state = std::move(effect.state);
}

void Trainer::Impl::Abort(const absl::Status& status) {
  // Not from within an effect: the coordinator may be about to say that all is well.
  if (result_.ok()) result_ = status;
  loop_.Post(
      [this, status] { Pump([&](Coordinator& coordinator) { coordinator.Abort(status); }); });
}

void Trainer::Impl::Carry(RunEnded effect) {
  StopTrainingClock();
  if (!job_.plan_only) parts_.display->Finish(View());
  outcome_.step = effect.step;
  outcome_.stopped_by_user = effect.stopped_by_user;
  if (result_.ok()) result_ = effect.status;
  // What was sent last (Release) still has to leave: streams close in order when they are
  // destroyed.
  loop_.Stop();
}

Trainer::Trainer(TrainingJob job, TrainerParts parts)
    : impl_(std::make_unique<Impl>(std::move(job), parts)) {}
Trainer::~Trainer() = default;
absl::StatusOr<TrainingOutcome> Trainer::Run() { return impl_->Run(); }
void Trainer::StopAtBarrier() { impl_->StopAtBarrier(); }

}  // namespace runnel
