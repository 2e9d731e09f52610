// The coordinator's part that finds lost workers and watches whether anything moves.

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/run/machines/coordinator.h"

namespace runnel {

namespace {

bool HasCopies(const std::optional<ReplicatedBarrier>& barrier, int device) {
  return barrier.has_value() &&
         std::any_of(barrier->layers.begin(), barrier->layers.end(), [device](const auto& held) {
           return std::find(held.devices.begin(), held.devices.end(), device) != held.devices.end();
         });
}

}  // namespace

void Coordinator::TimerFired(int64_t now_ns, int64_t moved_bytes) {
  if (ended()) return;
  const std::optional<ReplicatedBarrier>& copies = replication_.committed();
  // Waiting for workers and measuring are no part of what a change of plan takes.
  if (has_plan() || move_.under_way()) {
    loss_price_.Watch(move_.under_way(),
                      std::max(recovery_.central_reached_ns(), copies ? copies->reached_ns : 0),
                      now_ns);
  }
  detector_.SetPrice(loss_price_);
  for (const Detector::Finding& finding : detector_.Tick(roster_, now_ns, effects_)) Lose(finding);
  Gather(now_ns);
  CheckStandstill(now_ns, moved_bytes);
}

std::string Coordinator::PhaseText() const {
  if (recovery_.waiting()) return "a worker of this host is started again";
  if (gathering_.waits()) return "workers are waited for";
  if (measuring_.links().under_way()) return "paths to workers are measured";
  if (measuring_.devices().under_way()) return "devices are measured";
  if (move_.fetching()) return "stages hand over layers";
  if (move_.revocable()) return "stages are prepared";
  if (move_.under_way()) return "stages connect to each other";
  if (barrier_.evaluating()) return "the pipeline evaluates";
  if (dry_runs_.under_way()) return "the noise of gradients is measured";
  if (states_.collection().under_way()) return "states are collected";
  return "the stages train";
}

void Coordinator::CheckStandstill(int64_t now_ns, int64_t moved_bytes) {
  // These have deadlines of their own, or somebody who sees to them.
  if (joining() || states_.evaluations().under_way() || course_.is_to_pause()) standstill_.Move();
  if (!standstill_.IsTooLong(now_ns, moved_bytes + detector_.progress())) return;
  End(absl::DeadlineExceededError(absl::StrCat(
          "nothing has moved for ", Standstill::kLimitNs / 1'000'000'000, " s while ", PhaseText(),
          ", though all workers say that they live: see their logs, and the links between them")),
      false);
}

void Coordinator::Broken(ConnectionId connection, const absl::Status& why, int64_t now_ns) {
  if (ended()) return;
  detector_.Break(connection, why, roster_, now_ns, effects_);
  // A worker that is no member is not waited for.
  if (!roster_.DeviceOf(connection).has_value()) effects_.push_back(CloseControl{connection});
}

void Coordinator::Resumed(ConnectionId connection, int64_t now_ns) {
  detector_.Resume(connection, now_ns, effects_);
}

void Coordinator::PortProbed(ConnectionId connection, PortAnswer answer, int64_t now_ns) {
  if (ended()) return;
  if (const auto finding = detector_.AddAnswer(connection, answer, now_ns)) Lose(*finding);
}

bool Coordinator::IsNeeded(int device) const {
  if (!has_plan() || recovery_.replacing()) return !move_.under_way() || move_.Uses(device);
  // Its part of a state may be of a stage that it has no more.
  if (states_.collection().Awaits(device)) return true;
  return active_.plan.StageOf(device).has_value() && (course_.trains() || barrier_.evaluating());
}

void Coordinator::Gone(ConnectionId connection, const absl::Status& status) {
  if (ended()) return;
  const std::optional<int> device = roster_.Leave(connection, effects_);
  if (!device.has_value()) return;
  // Until it has a plan, a recovery counts on the copies of all that were there when it began.
  const bool is_counted_on = recovery_.waiting() && HasCopies(Replicas(), *device);
  replication_.Lose(*device);
  traces_.Forget(connection);
  const bool is_measured = measuring_.Skip(*device, roster_, effects_);
  const std::string& name = roster_.name(*device);
  if (roster_.device(*device).released && !is_counted_on && !IsNeeded(*device)) {
    effects_.push_back(LogLine{Severity::kInfo, absl::StrCat("worker ", name, " has left")});
    if (is_measured) Measure();
    return;
  }
  effects_.push_back(
      Persist{WorkerLost{step(), DeviceId(*device), name, std::string(status.message())}});
  if (!has_plan() && !move_.under_way() && !recovery_.waiting()) {
    if (absl::Status again = gathering_.Lose(*device, status, roster_, effects_); !again.ok())
      return End(again, false);
    if (is_measured) Measure();
    return;
  }
  if (is_counted_on || IsNeeded(*device)) return Recover(*device, status.message());
  if (!has_plan() || recovery_.replacing()) return;
  if (!move_.revocable() || !move_.Uses(*device)) {
    if (is_measured) Measure();
    return;
  }
  move_.Abort(absl::StrCat("worker ", name, " was lost"), roster_, effects_);
  GoOnFromMove();
}

void Coordinator::Lose(const Detector::Finding& finding) {
  effects_.push_back(CloseControl{finding.connection});
  Gone(finding.connection, absl::UnavailableError(finding.why));
}

}  // namespace runnel
