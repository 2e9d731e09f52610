#include "central/trainer.h"

#include <atomic>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/codec_settings.h"
#include "central/feeder.h"
#include "central/link_rates.h"
#include "central/predicted_cost.h"
#include "central/replanner.h"
#include "central/timeline.h"
#include "central/weights_digest.h"
#include "central/worker_process.h"
#include "proto/base/processor_time.h"
#include "proto/base/status_macros.h"
#include "proto/transport/address.h"

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

class Trainer::Impl final : public CentralControlObserver {
 public:
  Impl(TrainingJob job, TrainerParts parts)
      : job_(std::move(job)), parts_(parts), loop_(parts.clock) {}
  ~Impl() override;

  absl::StatusOr<TrainingOutcome> Run();
  void StopAtBarrier() {
    loop_.Post([this] { Pump([](Coordinator& coordinator) { coordinator.StopAtBarrier(); }); });
  }

  void OnJoined(ConnectionId) override {}
  void OnMessage(ConnectionId id, WorkerMessage message) override {
    loop_.Post([this, id, message = std::move(message)] { Received(id, message); });
  }
  void OnGone(ConnectionId id, const absl::Status& status) override {
    const absl::Status reason =
        status.ok() ? absl::UnavailableError("it closed its control stream") : status;
    loop_.Post([this, id, reason] {
      Pump([&](Coordinator& coordinator) { coordinator.Gone(id, reason); });
    });
  }

 private:
  const RunSetup& setup() const { return *job_.setup; }
  absl::Status MakePredictor();
  CoordinatorOptions Options();
  void UsePredictor(CoordinatorOptions& options);
  ReplannerOptions ReplanOptions();
  absl::StatusOr<Plan> MakePlan(const std::vector<Device>& devices,
                                const std::vector<std::vector<double>>& seconds);
  absl::Status StartWorkers();
  bool IsLocal(const WorkerHello& hello) const;
  void Received(ConnectionId id, const WorkerMessage& message);
  void NoteProgress();
  void Tick();
  void WatchWorkers();

  // Gives the coordinator an event and carries out what it wants.
  template <typename Event>
  void Pump(Event event) {
    if (!coordinator_.has_value()) return;
    event(*coordinator_);
    for (CoordinatorEffect& effect : coordinator_->TakeEffects()) {
      std::visit([this](auto& one) { Carry(std::move(one)); }, effect);
    }
  }
  void Carry(SendControl effect);
  void Carry(CloseControl effect) { server_->Close(effect.connection); }
  void Carry(ConnectFeed effect);
  void Carry(FeedUntil effect);
  void Carry(FeedEvaluation effect) { feeder_->FeedEvaluation(effect.first, effect.micro_batches); }
  void Carry(Persist effect);
  void Carry(StateCollected effect);
  void Carry(LogLine effect) { parts_.logger->Log(effect.severity, effect.text); }
  void Carry(RunEnded effect);
  void Note(const PlanDecided& decided);
  void Note(const BarrierPassed& barrier);
  void Note(const EvaluationRecorded& evaluation);
  template <typename Other>
  void Note(const Other&) {}

  absl::Status SaveCheckpoint(const StateCollected& collected);
  void Abort(const absl::Status& status);
  void StopTrainingClock();
  int64_t TrainingNs() const;
  int64_t SamplesUntil(int64_t sequence) const;
  RunView View();
  void UpdateLoss(const Telemetry& telemetry);
  RunSummary Summarise() const;

  TrainingJob job_;
  TrainerParts parts_;
  EventLoop loop_;
  BufferPool pool_;
  std::string token_ = NewToken();
  std::optional<RunPredictor> predictor_;  // --cost predicted
  std::optional<Replanner> replanner_;
  // What is known at a barrier.
  Conditions WithRates(LinkRates rates) const {
    Conditions conditions = profiled_;
    conditions.rates = std::move(rates);
    return conditions;
  }

  Conditions profiled_;   // of devices, as first measured
  LinkRates link_rates_;  // as of the last barrier at which another plan was thought of
  std::optional<Coordinator> coordinator_;
  std::unique_ptr<CentralControl> server_;
  std::unique_ptr<Feeder> feeder_;
  std::vector<std::unique_ptr<WorkerProcess>> processes_;
  bool workers_watched_ = true;

  int64_t begin_ns_ = 0;
  int64_t training_ns_ = 0;
  int64_t training_since_ns_ = 0;  // 0: not training
  ProcessorTime processor_time_;   // of central, while training
  int64_t plan_since_ns_ = 0;      // training time before the plan that holds
  Timeline timeline_;
  double recent_loss_ = std::numeric_limits<double>::quiet_NaN();
  Telemetry loss_seen_;    // when recent_loss_ was formed
  Telemetry epoch_seen_;   // at the last evaluation
  double epoch_loss_ = 0;  // mean training loss between the last two evaluations
  std::optional<EvaluationRecorded> evaluation_;
  TrainingOutcome outcome_;
  absl::Status result_;
};

Trainer::Impl::~Impl() {
  // Links and streams first, then the processes that they led to.
  feeder_.reset();
  for (const auto& process : processes_) process->Wait(kWorkerGraceMs);
  server_.reset();
  for (const auto& process : processes_) process->Terminate(kWorkerGraceMs);
}

CoordinatorOptions Trainer::Impl::Options() {
  const RunSettings& settings = setup().settings;
  CoordinatorOptions options;
  options.model = setup().model;
  options.training = setup().training;
  options.barriers = setup().barriers;
  options.eval_samples = settings.eval_every < 0 ? 0 : setup().data.test->size();
  options.first_step = job_.first_step;
  options.stop_step = job_.stop_step;
  options.workers = setup().workers;
  options.plain_loop = setup().plain_loop;
  options.plan_only = job_.plan_only;
  options.collect_at_barriers = !settings.checkpoint_dir.empty();
  options.recipe = settings.recipe;
  options.format = setup().format;
  options.backend = settings.backend;
  options.codecs = CodecsOf(settings);
  options.needs_profile = NeedsProfile(setup()) && !job_.plan.has_value();
  options.plan = [this](const std::vector<Device>& devices,
                        const std::vector<std::vector<double>>& seconds) {
    return MakePlan(devices, seconds);
  };
  if (!job_.plan.has_value() && Replans(setup())) {
    replanner_.emplace(ReplanOptions());
    options.replan = [this](const BarrierReport& report) {
      NoteLinkRates(report.stages, report.devices.size(), link_rates_);
      return replanner_->AtBarrier(report);
    };
  }
  if (predictor_.has_value()) UsePredictor(options);
  options.shaping = {settings.link_mbps, settings.link_delay_ms};
  options.link_token = token_;
  options.initial_state = std::move(job_.state);
  return options;
}

absl::Status Trainer::Impl::MakePredictor() {
  if (setup().settings.cost != "predicted" || !NeedsProfile(setup()) || job_.plan.has_value())
    return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(predictor_, MakeRunPredictor(setup()));
  if (predictor_->known_devices() == 0) {
    parts_.logger->Log(Severity::kInfo,
                       absl::StrCat("no profile of ", setup().model.name,
                                    " is known: layers are predicted by the FLOPs line first"));
  }
  return absl::OkStatus();
}

void Trainer::Impl::UsePredictor(CoordinatorOptions& options) {
  options.profile_ranges = predictor_->representatives();
  options.predict = [this](
                        int device,
                        const std::vector<double>& seconds) -> absl::StatusOr<std::vector<double>> {
    RUNNEL_RETURN_IF_ERROR(predictor_->Characterise(device, seconds));
    return predictor_->RangeSeconds(device);
  };
  if (!replanner_.has_value()) return;
  options.to_measure = [this](const BarrierReport& report) {
    return replanner_->ToMeasure(report);
  };
}

absl::StatusOr<Plan> Trainer::Impl::MakePlan(const std::vector<Device>& devices,
                                             const std::vector<std::vector<double>>& seconds) {
  if (job_.plan.has_value()) {
    Plan plan = *job_.plan;
    plan.generation = job_.generation;
    return plan;
  }
  std::vector<int> numbers(devices.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  for (size_t i = 0; i < devices.size(); ++i) {
    profiled_.processor_shares.push_back(devices[i].processor_share);
    if (!seconds.empty())
      profiled_.profiled_seconds.push_back(
          std::accumulate(seconds[i].begin(), seconds[i].end(), 0.0));
  }
  RUNNEL_ASSIGN_OR_RETURN(Plan plan,
                          PlanFor(setup(), job_.generation, numbers, seconds, profiled_));
  if (!seconds.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const double period_s,
                            PredictPeriod(setup(), plan, seconds, profiled_));
    RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(setup().training));
    outcome_.summary.predicted_samples_per_s =
        static_cast<double>(batching.MicroBatchSizes().front()) / period_s;
  }
  return plan;
}

ReplannerOptions Trainer::Impl::ReplanOptions() {
  ReplannerOptions options;
  options.make_plan = [this](const std::vector<int>& devices,
                             const std::vector<std::vector<double>>& seconds) {
    return PlanFor(setup(), job_.generation, devices, seconds, WithRates(link_rates_));
  };
  if (!MovesLayers(setup())) options.make_plan = nullptr;
  if (BitsFollowLinks(setup().settings)) {
    options.fit_bits = [this](const Plan& plan, const std::vector<std::vector<double>>& seconds,
                              double bandwidth_share) {
      return RefitBits(setup(), plan, seconds, WithRates(Scaled(link_rates_, bandwidth_share)));
    };
    options.coding_error = [this](const Plan& plan) { return CodingErrorOf(setup(), plan); };
  }
  options.period_seconds = [this](const Plan& plan,
                                  const std::vector<std::vector<double>>& seconds) {
    return PredictPeriod(setup(), plan, seconds, WithRates(link_rates_));
  };
  for (const LayerState& layer : job_.state.layers) {
    int64_t bytes = 0;
    for (const auto* tensors : {&layer.tensors, &layer.momentum}) {
      for (const TensorData& tensor : *tensors) bytes += static_cast<int64_t>(tensor.bytes.size());
    }
    options.layer_state_bytes.push_back(bytes);
  }
  const double mbps =
      setup().settings.plan_mbps > 0 ? setup().settings.plan_mbps : setup().settings.link_mbps;
  if (mbps > 0) options.link_bytes_per_second = mbps * 1e6 / 8;
  options.micro_batches_a_step = setup().settings.micro_batches;
  options.stop_step = job_.stop_step;
  options.predictor = predictor_.has_value() ? &*predictor_ : nullptr;
  return options;
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
  RUNNEL_RETURN_IF_ERROR(MakePredictor());
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

// Stage 0 is the last to be done with a micro-batch.
void Trainer::Impl::NoteProgress() {
  if (coordinator_->stages().empty()) return;
  const Telemetry& first = coordinator_->stages().front().telemetry;
  if (first.last_backward_ns == 0) return;
  timeline_.Add(coordinator_->batching().Locate(Sequence(first.backwards)).step,
                first.last_backward_ns);
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
  options.train = setup().data.train.get();
  options.test = setup().data.test.get();
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

void Trainer::Impl::StopTrainingClock() {
  if (training_since_ns_ == 0) return;
  processor_time_.Pause();
  training_ns_ += parts_.clock->NowNanos() - std::exchange(training_since_ns_, 0);
}

int64_t Trainer::Impl::TrainingNs() const {
  return training_ns_ +
         (training_since_ns_ == 0 ? 0 : parts_.clock->NowNanos() - training_since_ns_);
}

void Trainer::Impl::Carry(Persist effect) {
  std::visit([this](const auto& record) { Note(record); }, effect.record);
  if (parts_.journal == nullptr) return;
  if (absl::Status status = parts_.journal->Append(effect.record); !status.ok()) Abort(status);
}

void Trainer::Impl::Note(const PlanDecided& decided) {
  // The new plan's stages count from nothing.
  plan_since_ns_ = TrainingNs();
  loss_seen_ = epoch_seen_ = Telemetry();
  outcome_.plan = decided.plan;
  outcome_.plans.push_back(decided);
  PlanBandwidth& bandwidth = outcome_.summary.plan_bandwidth;
  bandwidth = BandwidthOf(setup(), decided.plan, link_rates_);
  if (job_.plan.has_value()) bandwidth = {"recorded", {}};
  if (setup().plain_loop) return;
  parts_.display->Line(ToString(decided.plan, setup().model));
  if (!bandwidth.links.empty()) parts_.display->Line(BandwidthText(bandwidth));
}

void Trainer::Impl::Note(const BarrierPassed&) { StopTrainingClock(); }

void Trainer::Impl::Note(const EvaluationRecorded& evaluation) {
  const Telemetry& now = coordinator_->stages().back().telemetry;
  if (now.loss_samples > epoch_seen_.loss_samples) {
    epoch_loss_ = (now.loss_sum - epoch_seen_.loss_sum) /
                  static_cast<double>(now.loss_samples - epoch_seen_.loss_samples);
  }
  epoch_seen_ = now;
  evaluation_ = evaluation;
  outcome_.summary.evaluations.push_back({evaluation.step, evaluation.accuracy, evaluation.loss});
  parts_.display->Evaluation(View(), evaluation.accuracy, evaluation.loss);
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

int64_t Trainer::Impl::SamplesUntil(int64_t sequence) const {
  const Batching& batching = coordinator_->batching();
  const int64_t per_epoch = batching.sequences_per_epoch();
  const MicroBatch last = batching.Locate(Sequence(per_epoch - 1));
  const MicroBatch next = batching.Locate(Sequence(sequence));
  return next.epoch * (last.first_sample + last.samples) + next.first_sample;
}

void Trainer::Impl::UpdateLoss(const Telemetry& telemetry) {
  if (telemetry.loss_samples <= loss_seen_.loss_samples) return;
  recent_loss_ = (telemetry.loss_sum - loss_seen_.loss_sum) /
                 static_cast<double>(telemetry.loss_samples - loss_seen_.loss_samples);
  loss_seen_ = telemetry;
}

RunView Trainer::Impl::View() {
  RunView view;
  view.model = setup().model.name;
  view.plan = coordinator_->plan();
  view.stages = coordinator_->stages();
  view.training_ns = TrainingNs();
  view.plan_ns = view.training_ns - plan_since_ns_;
  ProgressState& progress = view.progress;
  progress.epochs = setup().settings.epochs;
  progress.steps = job_.stop_step;
  progress.steps_per_epoch = coordinator_->batching().steps_per_epoch();
  progress.step = coordinator_->step();
  if (view.stages.empty()) return view;
  // The first stage is the last to be done with a micro-batch.
  const int64_t done =
      std::max(view.stages.front().telemetry.backwards,
               coordinator_->batching().FirstSequence(coordinator_->step()).value());
  progress.step = coordinator_->batching().Locate(Sequence(done)).step;
  // At the end of an epoch: all of it is done, not nothing of the next.
  progress.epoch = progress.step == 0 ? 0 : (progress.step - 1) / progress.steps_per_epoch;
  progress.step_in_epoch = progress.step - progress.epoch * progress.steps_per_epoch;
  progress.samples = SamplesUntil(done);
  UpdateLoss(view.stages.back().telemetry);
  progress.loss = recent_loss_;
  const int64_t begun =
      SamplesUntil(coordinator_->batching().FirstSequence(job_.first_step).value());
  if (view.training_ns > 0) {
    view.samples_per_s =
        static_cast<double>(progress.samples - begun) * 1e9 / static_cast<double>(view.training_ns);
  }
  for (const StageSummary& stage : FiguresOf(view.plan, view.stages, view.plan_ns).stages) {
    progress.stage_busy.push_back(stage.busy_share);
  }
  return view;
}

RunSummary Trainer::Impl::Summarise() const {
  const RunSettings& settings = setup().settings;
  RunSummary summary = outcome_.summary;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  summary.accuracy = evaluation_.has_value() ? evaluation_->accuracy : kNone;
  summary.loss = evaluation_.has_value() ? evaluation_->loss : kNone;
  summary.train_loss = epoch_loss_;
  const int64_t trained =
      SamplesUntil(coordinator_->batching().FirstSequence(outcome_.step).value()) -
      SamplesUntil(coordinator_->batching().FirstSequence(job_.first_step).value());
  if (training_ns_ > 0) {
    const auto training_ns = static_cast<double>(training_ns_);
    summary.samples_per_s = static_cast<double>(trained) * 1e9 / training_ns;
    summary.central_processor_share = static_cast<double>(processor_time_.ns()) / training_ns;
  }
  summary.wall_s = static_cast<double>(parts_.clock->NowNanos() - begin_ns_) * 1e-9;
  if (!outcome_.state.layers.empty()) summary.weights_sha256 = WeightsSha256(outcome_.state);
  summary.steps = outcome_.step;
  summary.epochs = outcome_.step / coordinator_->batching().steps_per_epoch();
  summary.model = settings.model;
  summary.dataset = settings.dataset;
  summary.schedule = settings.schedule;
  summary.policy = settings.policy;
  summary.cost = settings.cost;
  summary.seed = settings.seed;
  summary.recipe = settings.recipe;
  summary.gradient_bits = settings.gradient_bits;
  summary.codec_forward = settings.codec_forward;
  summary.codec_backward = settings.codec_backward;
  summary.plan = outcome_.plan;
  const RunFigures figures =
      FiguresOf(outcome_.plan, coordinator_->stages(), training_ns_ - plan_since_ns_);
  summary.links = figures.links;
  summary.stages = figures.stages;
  summary.timeline = timeline_.Points();
  return summary;
}

Trainer::Trainer(TrainingJob job, TrainerParts parts)
    : impl_(std::make_unique<Impl>(std::move(job), parts)) {}
Trainer::~Trainer() = default;
absl::StatusOr<TrainingOutcome> Trainer::Run() { return impl_->Run(); }
void Trainer::StopAtBarrier() { impl_->StopAtBarrier(); }

}  // namespace runnel
