#include "central/run/machines/losses/recovery.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace runnel {

// Seconds of bringing all states to central's host, where all paths end, so that their times add
// up. For an unmeasured path the links of the device's stage stand in.
double Recovery::CollectSeconds(const ActivePlan& active,
                                const std::vector<DeviceFacts>& devices) const {
  double seconds = 0;
  for (const StageStatus& stage : active.stages) {
    const DeviceFacts& device = OfSoleDevice(stage.plan, devices);
    if (device.is_local || options_.layer_bytes.empty()) continue;
    const double bytes = static_cast<double>(
        std::accumulate(options_.layer_bytes.begin() + stage.plan.first_layer,
                        options_.layer_bytes.begin() + stage.plan.last_layer + 1, int64_t{0}));
    LinkRate rate = device.path.up.rate;
    if (!rate.is_set()) {
      rate = SlowerOf(LinkRate::BytesPerSecond(stage.telemetry.upstream_bytes_per_second),
                      LinkRate::BytesPerSecond(stage.telemetry.downstream_bytes_per_second));
    }
    seconds += rate.Seconds(bytes);
  }
  return seconds;
}

bool Recovery::WantsState(const ActivePlan& active, const std::vector<DeviceFacts>& devices,
                          int64_t now_ns) {
  if (!options_.is_possible) return false;
  if (!kept_ns_.has_value()) kept_ns_ = now_ns;
  const auto expected_ns = static_cast<int64_t>(CollectSeconds(active, devices) * 1e9);
  const int64_t share = options_.has_replicas ? kTimeShareBeside : kTimeShare;
  return now_ns - *kept_ns_ >= share * std::max(took_ns_, expected_ns);
}

void Recovery::Keep(int64_t step, ModelState state, int64_t now_ns) {
  if (!options_.is_possible) return;
  kept_ns_ = now_ns;
  took_ns_ = std::max<int64_t>(now_ns - began_ns_, 0);
  step_ = step;
  state_ = std::move(state);
}

void Recovery::Reach(RecoveryReached::Phase phase, RunEffects& effects) const {
  effects.push_back(RecoveryReached{phase, step(), lost_, replicas_.has_value()});
}

absl::Status Recovery::Lose(const LostStage& lost, const std::optional<ReplicatedBarrier>& replicas,
                            const Roster& roster, RunEffects& effects) {
  const bool is_worker = lost.backend.empty();
  const char* const happened = lost.failed ? " failed" : " was lost";
  const std::string of = is_worker ? "" : absl::StrCat("backend ", lost.backend, " of ");
  const std::string name = absl::StrCat(of, roster.name(lost.device));
  const std::string what = absl::StrCat(of, "worker ", roster.name(lost.device));
  const std::string why(absl::StripPrefix(lost.why, absl::StrCat("backend ", lost.backend, ": ")));
  last_loss_ = absl::StrCat(what, happened, " after step ", lost.step, " (", why, ")");
  if (!options_.is_possible) return absl::UnavailableError(last_loss_);
  // A worker does without a lost backend; a worker that keeps losing backends is broken.
  if (!is_worker && ++backends_lost_ > kMostInVain) {
    return absl::UnavailableError(absl::StrCat(last_loss_, ", as were ", kMostInVain,
                                               " others since the last barrier: see its log"));
  }
  if (state_of_it_ == State::kIdle || state_of_it_ == State::kReplaying) lost_.clear();
  const bool is_first = lost_.empty();
  lost_.push_back(name);
  reached_ = std::max(reached_, lost.reached);
  replicas_.reset();
  // Replicas of central's own barrier save the transfer from central.
  if (replicas.has_value() &&
      (replicas->step == step_ || (replicas->step > step_ && replicas->is_whole()))) {
    replicas_ = replicas;
  }
  effects.push_back(StopFeed{});
  effects.push_back(LogLine{
      Severity::kWarning,
      absl::StrCat(what, happened, ": ", why,
                   !is_worker    ? "; from now on this worker computes on its CPU"
                   : lost.failed ? "; the run goes on from a barrier, without it if that can be"
                                 : "")});
  if (is_first) Reach(RecoveryReached::Phase::kLost, effects);
  if (waiting()) return absl::OkStatus();
  const std::optional<int> missing =
      roster.has_local_seats() ? roster.MissingLocal() : std::nullopt;
  state_of_it_ = State::kReplacing;
  if (!missing.has_value()) return absl::OkStatus();
  return Await(roster.name(*missing), effects);
}

bool Recovery::DropReplicas() { return std::exchange(replicas_, std::nullopt).has_value(); }

bool Recovery::SurvivesNotFinite(int64_t step) {
  const bool is_first = !not_finite_step_.has_value() || step > *not_finite_step_;
  not_finite_step_ = step;
  return is_first && options_.is_possible;
}

absl::Status Recovery::EndBeforeJoining(RunEffects& effects) {
  return waiting() ? StartAgain(effects) : absl::OkStatus();
}

absl::Status Recovery::Await(const std::string& name, RunEffects& effects) {
  state_of_it_ = State::kWaiting;
  awaited_ = name;
  return StartAgain(effects);
}

absl::Status Recovery::StartAgain(RunEffects& effects) {
  const std::optional<int64_t> pause_ms = starts_.NextPauseMs();
  if (!pause_ms.has_value()) {
    return absl::UnavailableError(
        absl::StrCat(last_loss_, "; workers of this host were started again for ",
                     StartAttempts::kPatienceMs / 60'000,
                     " minutes without a barrier in between, and each was lost: see their logs"));
  }
  effects.push_back(LogLine{Severity::kInfo, absl::StrCat("starting worker ", awaited_, " again")});
  effects.push_back(StartLocalWorker{awaited_, *pause_ms});
  return absl::OkStatus();
}

bool Recovery::Return() {
  if (!waiting()) return false;
  state_of_it_ = State::kReplacing;
  return true;
}

MoveOrder Recovery::Order(PlanDecided decided, PrepareStage common, RunEffects& effects) {
  const auto name = [&decided](std::string* out, int device) {
    absl::StrAppend(out, decided.devices[static_cast<size_t>(device)].name);
  };
  effects.push_back(
      LogLine{Severity::kInfo, absl::StrCat("the run goes on from step ", step(), " on ",
                                            absl::StrJoin(decided.plan.devices(), ", ", name))});
  Reach(RecoveryReached::Phase::kPlanned, effects);
  first_ = common.first_sequence;
  MoveOrder order;
  order.decided = std::move(decided);
  order.common = std::move(common);
  order.common.starts_over = true;
  if (!replicas_.has_value() || replicas_->step == step_) order.state = state_;
  if (replicas_.has_value()) {
    order.replica = replicas_->id;
    order.held = replicas_->layers;
  }
  order.common.draws_state = order.state.layers.empty() && !replicas_.has_value();
  order.recovered = Recovered{step(), lost_};
  return order;
}

void Recovery::Prepared(RunEffects& effects) {
  state_of_it_ = State::kBeginning;
  Reach(RecoveryReached::Phase::kPrepared, effects);
}

void Recovery::AddTelemetry(const Telemetry& telemetry, RunEffects& effects) {
  if (state_of_it_ == State::kBeginning && telemetry.backwards > first_.value()) {
    state_of_it_ = State::kReplaying;
    Reach(RecoveryReached::Phase::kFirstGradient, effects);
  }
  if (state_of_it_ != State::kReplaying || telemetry.backwards < reached_.value()) return;
  state_of_it_ = State::kIdle;
  reached_ = Sequence();
  Reach(RecoveryReached::Phase::kCaughtUp, effects);
}

absl::Status Recovery::NoPlan(const absl::Status& why) const {
  return absl::UnavailableError(
      absl::StrCat(last_loss_, ", and no plan fits the workers that are left: ", why.message()));
}

}  // namespace runnel
