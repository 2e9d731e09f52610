#pragma once

// A run of three workers on a machine without time: every message is answered at once, and tests
// hook what else happens onto messages.

#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "central/run/machines/coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "tests/central/run/machines/machine_effects.h"
#include "tests/central/scripted_planner.h"

namespace runnel {

// A layer's state is how many micro-batches it has been trained with. Some layers have none.
inline int64_t Trained(const LayerState& layer) {
  int64_t count = 0;
  std::memcpy(&count, layer.tensors.front().bytes.data(), sizeof(count));
  return count;
}

inline void Train(int64_t count, ModelState& state) {
  for (LayerState& layer : state.layers) {
    if (layer.tensors.empty()) continue;
    const int64_t sum = Trained(layer) + count;
    std::memcpy(layer.tensors.front().bytes.data(), &sum, sizeof(sum));
  }
}

inline ModelState Untrained(const ModelSpec& model, const NumberFormat& format) {
  ModelState state = InitialState(model, 1, format).value();
  for (LayerState& layer : state.layers) {
    if (!layer.tensors.empty()) layer.tensors.front().bytes.replace(0, 8, 8, '\0');
  }
  return state;
}

// Once, at the first message that fits.
using Trigger = std::function<bool(const SendControl&)>;

template <typename Message>
Trigger At(int64_t connection) {
  return [connection](const SendControl& send) {
    return send.connection == ConnectionId(connection) &&
           std::holds_alternative<Message>(send.message);
  };
}
// The grant from 40 to 80.
inline bool SecondGrant(const SendControl& send) {
  const auto* run = std::get_if<RunUntil>(&send.message);
  return run != nullptr && run->limit == Sequence(80);
}

// The one from 80 to 120.
inline bool ThirdGrant(const SendControl& send) {
  const auto* run = std::get_if<RunUntil>(&send.message);
  return run != nullptr && run->limit == Sequence(120);
}

// A coordinator and its workers, whose layers count what they were trained with.
class TrainingCluster {
 public:
  // LeNet has layers 0..5. Barriers at 40, 80 and 120, the end.
  explicit TrainingCluster(const Plan& first, int locals = 1, int64_t eval_samples = 0,
                           int64_t replicate_every = -1, bool checkpoints = false,
                           const NumberFormat& format = {}, int64_t measure_noise = -1) {
    CoordinatorOptions options;
    options.format = format;
    options.replicate_every = replicate_every;
    options.collect_at_barriers = checkpoints;
    options.dry_runs = {.from_step = measure_noise, .stop_step = 120};
    options.stage.model = model_;
    options.stage.training.dataset_samples = 1200;
    options.stage.training.batch_size = 10;
    options.stage.training.eval_batch_size = 10;
    options.barriers.rule = {.every = 40,
                             .eval_every_epochs = eval_samples > 0 ? 1 : 0,
                             .steps_per_epoch = 80,
                             .epochs = 3};
    options.barriers.stop_step = 120;
    options.barriers.eval_samples = eval_samples;
    options.barriers.eval_batch_size = 10;
    const int workers = 3;
    options.roster = {.local_workers = locals,
                      .dialling_workers = workers - locals,
                      .recipe = "fp32",
                      .codecs = {CodecId::Identity()}};
    options.initial_state = Untrained(model_, format);
    rules_.Add("scripted", std::make_unique<Rule>(this));
    options.rules = &rules_;
    planner_.first_plan = [first](const auto&) { return first; };
    options.planner = &planner_;
    coordinator_ = Coordinator::Create(std::move(options)).value();
    for (int i = 0; i < workers; ++i)
      coordinator_->Joined(ConnectionId(i), SampleHello("w" + std::to_string(i)), i < locals);
  }

  // `what` happens before the message that fits is answered, once.
  void When(Trigger trigger, std::function<void()> what) {
    hooks_.emplace_back(std::move(trigger), std::move(what));
  }
  void Kill(int64_t connection) {
    workers_[connection].gone = true;
    workers_[connection].replicas.clear();
    coordinator_->Gone(ConnectionId(connection), absl::UnavailableError("killed"));
  }
  // The worker stays; what computed its stage, or was to, is gone, and with it that stage.
  void LoseBackend(int64_t connection) {
    Worker& worker = workers_[connection];
    const PrepareStage& stage = worker.stage.has_value() ? *worker.stage : *worker.aside;
    const Generation generation = stage.plan.generation;
    worker.stage.reset();
    worker.aside.reset();
    coordinator_->Received(
        ConnectionId(connection),
        StageFailed{generation, "backend hexagon: its program ended", false, "hexagon"});
  }
  // Lost, and central does not know yet.
  void Silence(int64_t connection) { workers_[connection].gone = true; }

  // Carries effects out until there are none.
  void Settle() {
    for (auto effects = coordinator_->TakeEffects(); !effects.empty();
         effects = coordinator_->TakeEffects()) {
      for (RunEffect& effect : effects) std::visit([this](auto& one) { CarryOut(one); }, effect);
    }
  }

  Coordinator* operator->() { return &*coordinator_; }
  ScriptedPlanner& planner() { return planner_; }
  const std::string& log() const { return log_; }
  const std::string& lines() const { return lines_; }
  const absl::Status& ended() const { return ended_; }
  const std::vector<RecoveryReached::Phase>& phases() const { return phases_; }
  const std::vector<int32_t>& generations() const { return generations_; }
  const std::vector<PrepareStage>& prepared() const { return prepared_; }
  // Connections of workers that were told to go, in order.
  const std::vector<int64_t>& released() const { return released_; }
  bool central_hears_states_ = true;    // false: nothing comes of snapshots but of the last
  std::vector<std::string> rule_back_;  // steps to which the training rule was taken back
  bool returns_ = true;                 // a local worker that is started again joins
  int64_t change_at_ = -1;
  double noise_ = 1;  // variance of each stage's gradients

  // The last state: each layer was trained once with everything.
  void ExpectAllTrainedOnce() {
    EXPECT_TRUE(ended_.ok()) << ended_ << log_;
    ASSERT_EQ(final_.layers.size(), 6u) << log_;
    for (const LayerState& layer : final_.layers) {
      if (layer.tensors.empty()) continue;
      EXPECT_EQ(Trained(layer), 120) << layer.layer;
    }
    EXPECT_THAT(log_, ::testing::EndsWith(" b120 end120"));
    // A generation is never used twice.
    EXPECT_EQ(std::set<int32_t>(generations_.begin(), generations_.end()).size(),
              generations_.size());
  }

 private:
  struct Worker {
    std::optional<PrepareStage> stage, aside;
    std::map<ReplicaId, ModelState> replicas;
    int64_t trained = 0;
    bool gone = false;
  };
  class Rule final : public TrainingRule {
   public:
    explicit Rule(TrainingCluster* cluster) : cluster_(cluster) {}
    std::optional<ChangeTraining> AtBarrier(const BarrierReport& report) override {
      seen_ = report.step;
      if (report.step != cluster_->change_at_) return std::nullopt;
      return ChangeTraining{ChangeOfGradientBits(report.step, {1, 1}), "because"};
    }
    std::string State() const override { return std::to_string(seen_); }
    absl::Status Restore(absl::string_view state) override {
      cluster_->rule_back_.emplace_back(state);
      return absl::OkStatus();
    }

   private:
    TrainingCluster* cluster_;
    int64_t seen_ = 0;
  };

  template <typename Effect>
  void CarryOut(Effect&) {}
  void CarryOut(SendControl& send) {
    for (auto& [trigger, what] : hooks_) {
      if (trigger != nullptr && trigger(send)) {
        trigger = nullptr;
        std::exchange(what, nullptr)();
        break;
      }
    }
    Answer(send);
  }
  void CarryOut(Persist& persist) {
    if (const auto* plan = std::get_if<PlanDecided>(&persist.record)) {
      log_ += " plan" + std::to_string(plan->plan.generation.value());
      generations_.push_back(plan->plan.generation.value());
    }
    if (const auto* barrier = std::get_if<BarrierPassed>(&persist.record))
      log_ += " b" + std::to_string(barrier->step);
    if (const auto* e = std::get_if<EvaluationRecorded>(&persist.record))
      log_ += " e" + std::to_string(e->step);
    if (const auto* noise = std::get_if<NoiseMeasured>(&persist.record))
      log_ += " n" + std::to_string(noise->step);
    if (const auto* lost = std::get_if<WorkerLost>(&persist.record)) log_ += " lost-" + lost->name;
    if (const auto* recovered = std::get_if<Recovered>(&persist.record))
      log_ += " back" + std::to_string(recovered->step);
  }
  void CarryOut(StateCollected& state) {
    if (state.use.final) final_ = state.state;
    if (state.use.checkpoint && !state.use.final) log_ += " c" + std::to_string(state.step);
  }
  void CarryOut(StartLocalWorker& start) {
    log_ += " start-" + start.name;
    if (!returns_) return;
    connection_of_[start.name.back() - '0'] = next_connection_;
    coordinator_->Joined(ConnectionId(next_connection_++), SampleHello(start.name), true);
  }
  void CarryOut(StopFeed&) { feed_stands_ = false; }
  void CarryOut(ConnectFeed& feed) {
    feed_stands_ = true;
    fed_until_ = feed.first_sequence;
  }
  void CarryOut(FeedUntil& feed) {
    EXPECT_TRUE(feed_stands_) << "samples for stages that are no more";
    EXPECT_GT(feed.limit, fed_until_);
    fed_until_ = feed.limit;
  }
  void CarryOut(RecoveryReached& reached) { phases_.push_back(reached.phase); }
  void CarryOut(LogLine& line) { lines_ += line.text + "\n"; }
  void CarryOut(RunEnded& ended) {
    log_ += " end" + std::to_string(ended.step);
    ended_ = ended.status;
  }

  ModelState StateOf(const Worker& worker) const {
    const StagePlan& range = worker.stage->plan.stages[static_cast<size_t>(worker.stage->stage)];
    ModelState state = Slice(worker.stage->state, range.first_layer, range.last_layer);
    Train(worker.trained, state);
    return state;
  }

  void Answer(const SendControl& send) {
    const int64_t id = send.connection.value();
    Worker& worker = workers_[id];
    if (worker.gone) return;
    const auto reply = [&](WorkerMessage message) {
      coordinator_->Received(send.connection, message);
    };
    if (std::holds_alternative<Release>(send.message)) released_.push_back(id);
    if (const auto* refused = std::get_if<Refused>(&send.message))
      lines_ += "refused " + std::to_string(id) + ": " + refused->reason + "\n";
    if (const auto* prepare = std::get_if<PrepareStage>(&send.message)) {
      prepared_.push_back(*prepare);
      worker.aside = *prepare;
      if (prepare->starts_over) {
        worker.stage.reset();
      } else if (worker.stage.has_value()) {
        worker.aside->state = StateOf(worker);
        Merge(prepare->state, worker.aside->state);
      }
      if (prepare->replica.has_value()) {
        const StagePlan& range = prepare->plan.stages[static_cast<size_t>(prepare->stage)];
        ModelState state =
            Slice(worker.replicas[*prepare->replica], range.first_layer, range.last_layer);
        Merge(prepare->state, state);
        EXPECT_EQ(static_cast<int>(state.layers.size()), range.last_layer - range.first_layer + 1);
        worker.aside->state = state;
      }
      reply(StagePrepared{prepare->plan.generation});
    } else if (const auto* fetch = std::get_if<FetchLayers>(&send.message)) {
      LayersFetched answer{fetch->generation, {}};
      for (const LayerRange& range : fetch->ranges) {
        Merge(Slice(fetch->replica.has_value() ? worker.replicas[*fetch->replica] : StateOf(worker),
                    range.first_layer, range.last_layer),
              answer.state);
      }
      reply(std::move(answer));
    } else if (const auto* replicas = std::get_if<CommitReplicas>(&send.message)) {
      std::erase_if(worker.replicas,
                    [replicas](const auto& one) { return one.first < replicas->id; });
    } else if (const auto* commit = std::get_if<CommitPlan>(&send.message)) {
      worker.stage = std::exchange(worker.aside, std::nullopt);
      worker.trained = 0;
      if (worker.stage.has_value()) reply(StageReady{commit->generation});
    } else if (std::holds_alternative<AbortPlan>(send.message)) {
      worker.aside.reset();
    } else if (worker.stage.has_value()) {
      AnswerForStage(worker, send, reply);
    }
  }

  template <typename Reply>
  void AnswerForStage(Worker& worker, const SendControl& send, const Reply& reply) {
    const Generation generation = worker.stage->plan.generation;
    if (const auto* run = std::get_if<RunUntil>(&send.message)) {
      if (run->generation != generation) return;
      worker.trained = run->limit.value() - worker.stage->first_sequence.value();
      Telemetry telemetry{.generation = generation, .backwards = run->limit.value()};
      telemetry.loss_samples = telemetry.backwards;
      reply(telemetry);
      reply(BarrierReached{generation, run->limit});
    } else if (const auto* request = std::get_if<Replicate>(&send.message)) {
      if (request->id.generation != generation) return;
      const std::vector<StagePlan>& stages = worker.stage->plan.stages;
      const int own = worker.stage->stage;
      Merge(StateOf(worker), worker.replicas[request->id]);
      CopyHolders holders(stages.size());
      holders[static_cast<size_t>(own)] = request->holders;
      for (const int keeper : KeepersOf(holders, own)) {
        const int64_t connection =
            connection_of_[stages[static_cast<size_t>(keeper)].sole_device()];
        if (workers_[connection].gone) continue;
        Merge(StateOf(worker), workers_[connection].replicas[request->id]);
        if (std::abs(keeper - own) > 1)
          coordinator_->Received(ConnectionId(connection),
                                 Replicated{.id = request->id, .kept_of = own});
      }
      reply(Replicated{request->id, 1000, 2000, 64});
    } else if (const auto* snapshot = std::get_if<SnapshotRequest>(&send.message)) {
      if (snapshot->generation != generation) return;
      if (!central_hears_states_ && snapshot->sequence != Sequence(120)) return;
      reply(Snapshot{generation, snapshot->sequence, StateOf(worker)});
    } else if (const auto* dry = std::get_if<DryRunRequest>(&send.message)) {
      if (dry->generation != generation) return;
      const GradientSums sums{dry->micro_batches, 5, 3 * noise_, 0, 3 * noise_ / 50};
      reply(DryRunDone{generation, dry->first, sums, 1'000'000});
    } else if (const auto* evaluate = std::get_if<EvaluateRequest>(&send.message)) {
      const bool has_loss =
          worker.stage->stage + 1 == static_cast<int>(worker.stage->plan.stages.size());
      if (evaluate->generation == generation && has_loss)
        reply(EvaluationDone{generation, evaluate->first, 5.0, 20, 25});
    }
  }

  ModelSpec model_ = MakeModel("lenet").value();
  TrainingRules rules_;
  ScriptedPlanner planner_;
  std::optional<Coordinator> coordinator_;
  std::vector<std::pair<Trigger, std::function<void()>>> hooks_;
  std::map<int64_t, Worker> workers_;  // by connection
  int64_t next_connection_ = 100;
  std::map<int, int64_t> connection_of_ = {{0, 0}, {1, 1}, {2, 2}};  // by device
  bool feed_stands_ = false;
  Sequence fed_until_;
  std::string log_;
  std::string lines_;
  std::vector<RecoveryReached::Phase> phases_;
  std::vector<int32_t> generations_;
  std::vector<PrepareStage> prepared_;
  std::vector<int64_t> released_;
  ModelState final_;
  absl::Status ended_ = absl::UnknownError("still running");
};

}  // namespace runnel
