// Carries out the coordinator's effects.

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/planning/plan_maker.h"
#include "central/planning/planner.h"
#include "central/run/checkpoints/make_checkpoint.h"
#include "central/run/trainer_impl.h"
#include "proto/base/training/dials/precision.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

// Time within which a present host answers a connect. Several fit into the time after which a
// worker is cut off, so a route that is there again is noticed.
constexpr int64_t kPortTimeoutMs = 300;
constexpr int64_t kNsPerMs = 1'000'000;

// The evaluator has not seen the micro-batches before the state: their level, as a change.
std::vector<TrainingChange> ChangesToEvaluate(const RunSetup& setup, const Coordinator& coordinator,
                                              int64_t step) {
  const absl::StatusOr<PrecisionSetting> precision = ParsePrecision(setup.training.precision);
  if (!precision.ok() || step < 1) return {};
  using Kind = PrecisionSetting::Kind;
  if (precision->kind != Kind::kRule && precision->kind != Kind::kEpochs) return {};
  const int64_t epoch = (step - 1) / setup.barriers.steps_per_epoch;
  const int64_t level =
      PrecisionLevelAt(*precision, coordinator.ChangesAt(step - 1), epoch, step - 1);
  return {ChangeOfPrecision(step, level)};
}

}  // namespace

void Trainer::Impl::CarryOut(CloseControl effect) {
  // The worker may be lost: its silence is then the time of detection.
  if (const auto heard = heard_ns_.find(effect.connection); heard != heard_ns_.end())
    record_->recoveries().Lose(parts_.clock->NowNanos() - heard->second);
  server_->Close(effect.connection);
}

void Trainer::Impl::CarryOut(ProbePort effect) {
  const auto tell = [this, id = effect.connection](PortAnswer answer) {
    loop_.Post([this, id, answer] {
      Tell([&](Coordinator& coordinator) {
        coordinator.PortProbed(id, answer, parts_.clock->NowNanos());
      });
    });
  };
  if (parts_.ask_port != nullptr) return parts_.ask_port(effect.data_address, tell);
  const absl::StatusOr<Address> address = ParseAddress(effect.data_address);
  if (!address.ok()) return tell(PortAnswer::kNone);
  ports_.Ask(address->host, address->port, kPortTimeoutMs, tell);
}

void Trainer::Impl::CarryOut(SendControl effect) {
  const absl::Status status = server_->Send(effect.connection, std::move(effect.message));
  if (absl::IsResourceExhausted(status)) {
    const std::vector<Device>& devices = coordinator_->devices();
    const auto to = std::find_if(devices.begin(), devices.end(), [&effect](const Device& device) {
      return device.connection == effect.connection;
    });
    return Abort(absl::ResourceExhaustedError(absl::StrCat(
        "worker ", to == devices.end() ? "" : to->hello.name, " cannot be sent its stage: ",
        status.message(), ": give it fewer layers (more workers, or --policy runnel)")));
  }
  // The stream has ended: OnGone says so in its turn.
  if (!status.ok()) parts_.logger->Log(Severity::kDebug, std::string(status.message()));
}

void Trainer::Impl::CarryOut(ConnectFeed effect) {
  feed_.Connect(effect, coordinator_->batching(), [this](const absl::Status& status) {
    Tell([&](Coordinator& coordinator) { coordinator.FeedFailed(status); });
  });
}

void Trainer::Impl::CarryOut(StartLocalWorker effect) {
  const auto start = [this, name = effect.name] {
    if (absl::Status status = local_workers_.StartAgain(name); !status.ok()) Abort(status);
  };
  local_workers_.ExpectStart();
  if (effect.after_ms == 0) return start();
  loop_.PostAfter(effect.after_ms * kNsPerMs, start);
}

void Trainer::Impl::CarryOut(RecoveryReached effect) {
  const std::string line = record_->recoveries().Reach(effect, parts_.clock->NowNanos());
  if (line.empty()) return;
  parts_.display->Line(line);
  parts_.display->AddEvent({EventKind::kNote, effect.step, line});
}

void Trainer::Impl::CarryOut(FeedUntil effect) {
  record_->clock().Start();
  feed_.feeder()->FeedUntil(effect.limit);
}

void Trainer::Impl::CarryOut(Persist effect) {
  std::visit([this](const auto& record) { Follow(record); }, effect.record);
  if (!journal_.has_value()) return;
  // A decision is on the disk before anybody acts on it.
  const bool is_decision = std::holds_alternative<PlanDecided>(effect.record) ||
                           std::holds_alternative<TrainingChanged>(effect.record) ||
                           std::holds_alternative<Recovered>(effect.record);
  journal_->Append(std::move(effect.record));
  if (is_decision) journal_->Flush().IgnoreError();  // told by the thread
}

void Trainer::Impl::Follow(const PlanDecided& decided) {
  const bool is_first = record_->plans().empty();
  const PlanBandwidth bandwidth = job_.planner->AssumedBandwidth(decided.plan);
  record_->AddPlan(decided, bandwidth);
  const std::string links = BandwidthText(bandwidth);
  const std::string why = is_first ? job_.planner->Explanation() : coordinator_->move().why();
  ShowPlan(decided, links, lost_.empty() ? why : std::exchange(lost_, ""));
  if (setup().plain_loop) return;
  std::vector<std::string> names;
  for (const JournalDevice& device : decided.devices) names.push_back(device.name);
  parts_.display->Line(ToString(decided.plan, setup().model, names));
  if (!links.empty()) parts_.display->Line(links);
  if (is_first && !why.empty()) parts_.display->Line(why);
  for (const std::string& line : coordinator_->ProcessorLinesOf(decided.plan))
    parts_.display->Line(line);
}

void Trainer::Impl::Follow(const EvaluationRecorded& evaluation) {
  record_->AddEvaluation(evaluation,
                         GatesEffectiveMacs(coordinator_->RuleStatesAt(evaluation.step)));
  record_->clock().StopEvaluation();
  if (job_.evaluate_only) return record_->clock().Stop();
  best_.Evaluated(evaluation.step, evaluation.accuracy);
  parts_.display->Evaluation(View(), evaluation.step, evaluation.accuracy, evaluation.loss);
}

void Trainer::Impl::CarryOut(StateCollected effect) {
  const bool is_written = checkpoints_.is_on() && (effect.use.checkpoint || effect.use.final);
  if (effect.use.evaluation) {
    best_.Expect(effect.step);
    const bool is_last_use = !effect.use.final && !is_written;
    evaluator_->Evaluate(effect.step, effect.generation,
                         is_last_use ? std::move(effect.state) : effect.state,
                         ChangesToEvaluate(setup(), *coordinator_, effect.step));
  }
  if (effect.use.final) end_.outcome().state = is_written ? effect.state : std::move(effect.state);
  if (!is_written) return;
  const bool is_last = effect.use.final;
  checkpoints_.Add(MakeCheckpoint(setup(), server_->address(), *coordinator_, std::move(effect)),
                   is_last);
}

void Trainer::Impl::CarryOut(RunEnded effect) {
  record_->clock().Stop();
  end_.End(effect);
  if (!end_.ok()) {
    parts_.display->AddEvent(
        {EventKind::kFailed, effect.step, "the run ended", std::string(end_.status().message())});
  }
  if (!job_.plan_only && !job_.evaluate_only) parts_.display->Finish(View());
  StopIfEnded();
}

}  // namespace runnel
