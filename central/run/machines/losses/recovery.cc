#include "central/run/machines/losses/recovery.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace runnel {

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
  if (!is_possible_) return absl::UnavailableError(last_loss_);
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
      (replicas->step == copy_.step() || (replicas->step > copy_.step() && replicas->is_whole()))) {
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
  return is_first && is_possible_;
}

absl::Status Recovery::EndBeforeJoining(RunEffects& effects) {
  return waiting() ? StartAgain(effects) : absl::OkStatus();
}

absl::Status Recovery::Await(const std::string& name, RunEffects& effects) {
  state_of_it_ = State::kWaiting;
  awaited_ = name;
  // It is on its way: another start would end it.
  return started_ == name ? absl::OkStatus() : StartAgain(effects);
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
  started_ = awaited_;
  return absl::OkStatus();
}

bool Recovery::Return(const std::string& name) {
  if (started_ == name) started_.clear();
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
  if (!replicas_.has_value() || replicas_->step == copy_.step()) order.state = state();
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
