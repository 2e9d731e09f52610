#include "tests/sim/cluster/simulated_central.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "central/records/run_claim.h"
#include "proto/crypto/certificate.h"

namespace runnel {
namespace {

constexpr int64_t kTickNs = 100'000'000;
constexpr int64_t kJoinPatienceNs = 120'000'000'000;
constexpr int64_t kAnswerNs = 1'000'000;
constexpr int64_t kLateNs = 500'000'000;
constexpr int64_t kTryAgainNs = 1'000'000'000;
constexpr int64_t kNoAnswerNs = 300'000'000;
constexpr int64_t kEvalSamples = 10;
constexpr double kNsPerMs = 1e6;
constexpr int64_t kNsPerMilli = 1'000'000;

bool IsLocal(const std::string& name) { return absl::StartsWith(name, "local"); }

}  // namespace

SimulatedCentral::SimulatedCentral(const Parts& parts, const TrainingSettings& training)
    : parts_(parts),
      world_(*parts.world),
      life_(++parts.disk->life),
      loop_(&world_.network),
      planner_(&world_),
      routes_({parts.transport, &loop_.clock(), kCentralAddress, CentralSubject().ToString()}) {
  world_.Record(absl::StrCat("central starts, life ", life_));
  world_.nodes[kCentralNode] = NodeState::kUp;
  coordinator_ = Coordinator::Create(MakeOptions(training)).value();
  server_ = parts_.control->Listen(kCentralAddress, this).value();
  relay_ = std::make_unique<SimulatedRelay>(&world_, parts_.transport, kCentralAddress,
                                            [this](ConnectionId worker, RelayWanted wanted) {
                                              return server_->Send(worker, std::move(wanted));
                                            });
  loop_.PostAfter(kJoinPatienceNs, [this] {
    Tell([](Coordinator& coordinator) {
      coordinator.JoinTimedOut(kJoinPatienceNs / 1'000'000'000);
    });
  });
  loop_.Post([this] {
    Tick();
    Tell([this](Coordinator& coordinator) { coordinator.TimerFired(world_.now_ns(), 0); });
  });
  for (int i = 0; i < world_.scenario.locals; ++i) {
    awaited_.push_back(absl::StrCat("local-", i));
    parts_.start_local(awaited_.back());
  }
}

SimulatedCentral::~SimulatedCentral() {
  loop_.End();
  feeder_.reset();
  relay_.reset();
  server_.reset();
}

CoordinatorOptions SimulatedCentral::MakeOptions(const TrainingSettings& training) {
  const Scenario& scenario = world_.scenario;
  const std::vector<SimulatedDisk::Checkpoint>& kept = parts_.disk->checkpoints;
  const SimulatedDisk::Checkpoint* const from = kept.empty() ? nullptr : &kept.back();
  CoordinatorOptions options;
  options.roster.local_workers = scenario.locals;
  options.roster.dialling_workers = scenario.workers;
  options.roster.recipe = "fp32";
  options.roster.run = "the run";
  options.roster.life = life_;
  options.stage.model = world_.model;
  options.stage.training = training;
  options.stage.recipe = "fp32";
  options.stage.backend = "auto";
  options.stage.eval_samples = scenario.evaluates ? kEvalSamples : 0;
  options.measurement.request.repetitions = 1;
  options.needs_profile = scenario.measures_first != Scenario::First::kNothing;
  if (scenario.measures_first == Scenario::First::kRanges)
    options.measurement.sub_models = {{0, 0}, {0, scenario.layers - 1}};
  options.barriers.rule = {.every = scenario.barrier,
                           .eval_every_epochs = scenario.evaluates ? 1 : 0,
                           .steps_per_epoch = MakeBatching(training)->steps_per_epoch(),
                           .epochs = 1'000'000};
  options.barriers.stop_step = scenario.steps;
  options.barriers.eval_samples = options.stage.eval_samples;
  options.barriers.eval_batch_size = training.eval_batch_size;
  options.link_token = "a token";
  options.collect_at_barriers = scenario.checkpoints;
  options.replicate_every = scenario.replicate;
  options.layer_bytes = StateBytes(world_.model).value();
  options.planner = &planner_;
  if (from != nullptr) {
    options.initial_state = from->state;
    options.first_step = from->step;
    options.first_generation = FirstGeneration(life_, from->generation);
    parts_.rules->Resume(from->step);
    world_.Record(absl::StrCat("central goes on from step ", from->step));
  }
  if (world_.Has(PlantedBug::kGenerationUsedTwice)) options.first_generation = Generation(1);
  return options;
}

void SimulatedCentral::SetFrozen(bool frozen) {
  if (loop_.frozen() == frozen) return;
  loop_.SetFrozen(frozen);
  world_.nodes[kCentralNode] = frozen ? NodeState::kFrozen : NodeState::kUp;
  world_.network.SetCut(kCentralNode, frozen);
  world_.control.Flush();
}

// ---- what is heard

void SimulatedCentral::OnMessage(ConnectionId id, WorkerMessage message) {
  const int64_t now_ns = world_.now_ns();
  if (auto* piece = std::get_if<ProbePiece>(&message)) piece->arrived_ns = now_ns;
  if (auto* heartbeat = std::get_if<Heartbeat>(&message)) heartbeat->arrived_ns = now_ns;
  if (auto* reached = std::get_if<BarrierReached>(&message)) reached->arrived_ns = now_ns;
  if (auto* snapshot = std::get_if<Snapshot>(&message)) snapshot->arrived_ns = now_ns;
  if (auto* done = std::get_if<EvaluationDone>(&message)) done->arrived_ns = now_ns;
  loop_.Post([this, id, message = std::move(message)]() mutable {
    if (Distort(id, message)) Receive(id, std::move(message));
  });
}

void SimulatedCentral::Receive(ConnectionId id, WorkerMessage message) {
  if (const auto* hello = std::get_if<WorkerHello>(&message)) {
    names_[id] = hello->name;
    streams_.emplace(hello->name, id);
    return Tell(
        [&](Coordinator& coordinator) { coordinator.Joined(id, *hello, IsLocal(hello->name)); });
  }
  // The run has another state to go on from, so it would not end for that.
  const auto* failed = std::get_if<StageFailed>(&message);
  if (failed != nullptr && absl::StrContains(failed->reason, "has no copy of layer"))
    world_.Violate(absl::StrCat(names_[id], ": ", failed->reason, ", and central counted on it"));
  Tell([&](Coordinator& coordinator) { coordinator.Received(id, message); });
}

bool SimulatedCentral::OnBroken(ConnectionId id, const absl::Status& status) {
  marked_.insert(id);
  if (world_.Has(PlantedBug::kDeadWorkersHeartbeat)) return true;
  loop_.Post([this, id, status] {
    Tell([&](Coordinator& coordinator) { coordinator.Broken(id, status, world_.now_ns()); });
  });
  return true;
}

void SimulatedCentral::OnResumed(ConnectionId id) {
  loop_.Post([this, id] {
    Tell([&](Coordinator& coordinator) { coordinator.Resumed(id, world_.now_ns()); });
  });
}

void SimulatedCentral::OnGone(ConnectionId id, const absl::Status& status) {
  const absl::Status reason =
      status.ok() ? absl::UnavailableError("it closed its control stream") : status;
  loop_.Post([this, id, reason] {
    Tell([&](Coordinator& coordinator) { coordinator.Gone(id, reason); });
  });
}

void SimulatedCentral::Tick() {
  // In a copy: each may start another one.
  for (const std::string& name : std::vector<std::string>(awaited_)) {
    if (!coordinator_->joining() || parts_.runs(name)) continue;
    const absl::Status why =
        absl::UnavailableError(absl::StrCat(name, ", a local worker, ended before it joined"));
    Tell([&](Coordinator& coordinator) { coordinator.EndedBeforeJoining(name, why); });
  }
  parts_.rules->CheckBounds();
  loop_.PostAfter(kTickNs, [this] { Tick(); });
}

// ---- what is wanted

void SimulatedCentral::CarryOut(SendControl effect) {
  if (!Distort(effect)) return;
  parts_.rules->CheckSent(effect.message, life_);
  server_->Send(effect.connection, std::move(effect.message)).IgnoreError();
}

void SimulatedCentral::CarryOut(SetTimer effect) {
  loop_.PostAfter(effect.at_ns - world_.now_ns(), [this] {
    Tell([this](Coordinator& coordinator) { coordinator.TimerFired(world_.now_ns(), 0); });
  });
}

void SimulatedCentral::CarryOut(StartLocalWorker effect) {
  std::erase(awaited_, effect.name);
  loop_.PostAfter(effect.after_ms * kNsPerMilli, [this, name = effect.name] {
    awaited_.push_back(name);
    parts_.start_local(name);
  });
}

void SimulatedCentral::CarryOut(ProbePort effect) {
  const std::string& name = names_[effect.connection];
  const NodeState state = world_.nodes[name];
  const bool is_cut = world_.cut.count(name) > 0 || world_.cut.count(kCentralNode) > 0 ||
                      world_.network.IsLinkCut(name, kCentralNode);
  PortAnswer answer = PortAnswer::kAnswered;
  if (is_cut) {
    answer = PortAnswer::kNone;
  } else if (state == NodeState::kDown ||
             (state == NodeState::kUp && !world_.network.listens(effect.data_address))) {
    answer = PortAnswer::kRefused;
  }
  loop_.PostAfter(is_cut ? kNoAnswerNs : kAnswerNs, [this, id = effect.connection, answer] {
    Tell([&](Coordinator& coordinator) { coordinator.PortProbed(id, answer, world_.now_ns()); });
  });
}

void SimulatedCentral::CarryOut(ConnectFeed effect) {
  ++plans_;
  FeederOptions options;
  options.transport = &routes_;
  options.train = parts_.data->train.get();
  options.test = parts_.data->test.get();
  options.run_seed = coordinator_->plan().stages.empty() ? 0 : world_.seed;
  options.eval_batch_size = world_.scenario.batch;
  if (world_.Has(PlantedBug::kInputsByArrival) && plans_ > 1) options.run_seed += 1;
  Sequence first = effect.first_sequence;
  if (world_.Has(PlantedBug::kFeedFromWrongSequence) && plans_ > 1) first = first.next();
  feeder_ = std::make_unique<Feeder>(
      &loop_, &pool_, options, coordinator_->batching(), [this](const absl::Status& status) {
        Tell([&](Coordinator& coordinator) { coordinator.FeedFailed(status); });
      });
  feeder_->Connect(effect.generation, effect.first, effect.last, first, effect.window);
}

void SimulatedCentral::CarryOut(Persist effect) {
  world_.Record(JournalLine(effect.record));
  if (const auto* decided = std::get_if<PlanDecided>(&effect.record))
    parts_.disk->last_generation = decided->plan.generation;
  parts_.rules->Check(effect.record);
}

void SimulatedCentral::CarryOut(StateCollected effect) {
  parts_.rules->Check(effect);
  if (world_.scenario.checkpoints && (effect.use.checkpoint || effect.use.final))
    WriteCheckpoint(effect);
}

void SimulatedCentral::WriteCheckpoint(const StateCollected& collected) {
  SimulatedDisk::Checkpoint checkpoint{collected.step, collected.generation, collected.state};
  if (world_.Has(PlantedBug::kCheckpointOfWrongStep)) checkpoint.step += world_.scenario.barrier;
  ++unwritten_;
  if (collected.use.final) failures_.ExpectLast(collected.step);
  loop_.PostAfter(world_.DrawNs(world_.scenario.disk_ms, kNsPerMs, kDiskDraws),
                  [this, checkpoint = std::move(checkpoint), is_last = collected.use.final] {
                    Written(checkpoint, is_last);
                  });
}

void SimulatedCentral::Written(SimulatedDisk::Checkpoint checkpoint, bool is_last) {
  if (parts_.disk->full && is_last) {
    loop_.PostAfter(kTryAgainNs, [this, checkpoint = std::move(checkpoint)] {
      Written(checkpoint, /*is_last=*/true);
    });
    return;
  }
  --unwritten_;
  CheckpointEnd end{checkpoint.step, absl::OkStatus(), "a check-point"};
  if (parts_.disk->full) {
    end.status = absl::ResourceExhaustedError("no space left on device");
    end.path.clear();
  } else {
    parts_.disk->Keep(std::move(checkpoint));
  }
  std::string warning;
  const absl::Status ends_run = failures_.Add(end, world_.now_ns(), warning);
  world_.Record(absl::StrCat("central: check-point of step ", end.step, " ", warning));
  if (!ends_run.ok()) Tell([&](Coordinator& coordinator) { coordinator.Abort(ends_run); });
}

void SimulatedCentral::CarryOut(RecoveryReached effect) {
  if (effect.phase == RecoveryReached::Phase::kLost) ++world_.losses;
}

void SimulatedCentral::CarryOut(LogLine effect) {
  world_.Record(absl::StrCat("central: ", effect.text));
}

void SimulatedCentral::CarryOut(RunEnded effect) {
  world_.Record(
      absl::StrCat("central: the run ends at step ", effect.step, ": ", effect.status.ToString()));
  if (!ended_.has_value()) ended_ = effect.status;
}

// ---- planted bugs

bool SimulatedCentral::Distort(ConnectionId& id, WorkerMessage& message) {
  switch (world_.bug) {
    case PlantedBug::kStaleGeneration:
      if (auto* fetched = std::get_if<LayersFetched>(&message))
        fetched->generation = coordinator_->move().generation();
      if (auto* snapshot = std::get_if<Snapshot>(&message))
        snapshot->generation = coordinator_->plan().generation;
      return true;
    case PlantedBug::kStageDroppedAfterMeasuring:
      if (std::holds_alternative<ProfileFailed>(message)) marked_.insert(id);
      return true;
    case PlantedBug::kAnswersAreCounted:
      if (const auto* prepared = std::get_if<StagePrepared>(&message)) {
        for (const auto& [other, name] : names_) {
          if (other != id) Receive(other, *prepared);
        }
      }
      return true;
    case PlantedBug::kOldEvaluation:
      if (auto* done = std::get_if<EvaluationDone>(&message)) {
        if (!first_evaluation_.has_value()) first_evaluation_ = *done;
        if (first_evaluation_->generation != done->generation)
          done->correct = first_evaluation_->correct;
      }
      return true;
    case PlantedBug::kDeadWorkersHeartbeat:
      if (const auto* hello = std::get_if<WorkerHello>(&message)) {
        names_.emplace(id, hello->name);
        if (streams_.contains(hello->name)) return false;
      }
      if (const auto known = names_.find(id);
          known != names_.end() && streams_.contains(known->second))
        id = streams_[known->second];
      return true;
    case PlantedBug::kStateOfLaterStep:
      if (auto* snapshot = std::get_if<Snapshot>(&message)) {
        for (const HashEngine* engine : world_.engines) {
          if (engine->first_layer() == snapshot->state.layers.front().layer)
            snapshot->state = engine->ExportState().value();
        }
      }
      return true;
    case PlantedBug::kLayersOfEarlierMove:
      if (auto* fetched = std::get_if<LayersFetched>(&message)) {
        for (LayerState& layer : fetched->state.layers)
          layer = moved_.emplace(layer.layer, layer).first->second;
      }
      return true;
    default:
      return true;
  }
}

bool SimulatedCentral::Distort(SendControl& effect) {
  auto* const prepare = std::get_if<PrepareStage>(&effect.message);
  const auto answer = [this, id = effect.connection](WorkerMessage message) {
    loop_.Post([this, id, message = std::move(message)] { Receive(id, message); });
  };
  switch (world_.bug) {
    case PlantedBug::kCommitBeforeAck:
      if (const auto* replicate = std::get_if<Replicate>(&effect.message))
        answer(Replicated{replicate->id});
      return true;
    case PlantedBug::kStageDroppedAfterMeasuring:
      if (const auto* grant = std::get_if<RunUntil>(&effect.message);
          grant != nullptr && marked_.contains(effect.connection)) {
        answer(StageFailed{grant->generation, "was asked to train and has no stage"});
        return false;
      }
      return true;
    case PlantedBug::kCommitOvertaken:
      if (!std::holds_alternative<CommitReplicas>(effect.message)) return true;
      loop_.PostAfter(kLateNs, [this, effect] {
        server_->Send(effect.connection, effect.message).IgnoreError();
      });
      return false;
    case PlantedBug::kUncommittedReplica:
      if (const auto* replicate = std::get_if<Replicate>(&effect.message))
        begun_replica_ = replicate->id;
      if (auto* fetch = std::get_if<FetchLayers>(&effect.message);
          fetch != nullptr && fetch->replica.has_value())
        fetch->replica = begun_replica_;
      if (prepare != nullptr && prepare->replica.has_value()) prepare->replica = begun_replica_;
      return true;
    case PlantedBug::kGrantLost:
      return !std::holds_alternative<RunUntil>(effect.message) ||
             marked_.erase(effect.connection) == 0;
    case PlantedBug::kRecoveryToLaterStep:
      if (prepare != nullptr && prepare->replica.has_value()) {
        const Batching& batching = coordinator_->batching();
        prepare->first_sequence =
            batching.FirstSequence(batching.Locate(prepare->first_sequence).step + 1);
      }
      return true;
    default:
      return true;
  }
}

}  // namespace runnel
