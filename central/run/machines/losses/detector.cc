#include "central/run/machines/losses/detector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace runnel {
namespace {

std::string Seconds(int64_t ns) {
  return absl::StrFormat("%.2f s", static_cast<double>(ns) * 1e-9);
}

const char* TextOf(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kIdle:
      return "waiting";
    case WorkerPhase::kMeasuring:
      return "measuring";
    case WorkerPhase::kPreparing:
      return "preparing a stage";
    case WorkerPhase::kHandingOver:
      return "handing over its state";
    case WorkerPhase::kTraining:
      return "training";
  }
  return "";
}

}  // namespace

int64_t Detector::SilenceLimit(const Watched& watched) {
  // A worker's loop is never busy: until its rhythm is known it is taken for regular.
  if (!watched.heartbeats.is_known()) return kLeastSilenceNs;
  return std::clamp(watched.heartbeats.limit_ns(), kLeastSilenceNs, kMostSilenceNs);
}

bool Detector::IsSilent(const Watched& watched, int64_t now_ns) {
  return !watched.broken.empty() || now_ns - watched.heard_ns > SilenceLimit(watched);
}

void Detector::AddHeartbeat(ConnectionId connection, const Heartbeat& heartbeat) {
  const auto found = watched_.find(connection);
  if (found == watched_.end()) return;
  Watched& watched = found->second;
  const int64_t now_ns = heartbeat.arrived_ns;
  watched.heard_ns = std::max(watched.heard_ns, now_ns);
  watched.heartbeats.Add(now_ns);
  const bool same_phase = heartbeat.phase == watched.phase;
  if (same_phase && heartbeat.progress == watched.progress) return;
  // The time between two phases is no interval of either.
  if (same_phase) {
    watched.progresses.Add(now_ns);
  } else {
    watched.progresses.Restart(now_ns);
  }
  watched.phase = heartbeat.phase;
  watched.progress = heartbeat.progress;
  watched.progressed_ns = now_ns;
}

std::optional<Detector::Finding> Detector::AddAnswer(ConnectionId connection, PortAnswer answer,
                                                     int64_t now_ns) {
  const auto found = watched_.find(connection);
  if (found == watched_.end()) return std::nullopt;
  Watched& watched = found->second;
  if (!std::exchange(watched.question_is_out, false)) return std::nullopt;
  // A worker that was silent before its port was known counts as one whose port is open.
  if (!watched.usual.has_value()) watched.usual = watched.is_asked ? PortAnswer::kAnswered : answer;
  // Nothing of a silence that has ended counts for the next one, nor what was asked before it.
  if (std::exchange(watched.question_is_old, false) || !watched.is_asked) return std::nullopt;
  if (answer == PortAnswer::kRefused && watched.usual == PortAnswer::kRefused)
    answer = PortAnswer::kNone;
  watched.answer = answer;
  std::optional<Finding> finding = Judge(connection, watched, now_ns);
  if (finding.has_value()) watched_.erase(found);
  return finding;
}

void Detector::Break(ConnectionId connection, const absl::Status& why, const Roster& roster,
                     int64_t now_ns, RunEffects& effects) {
  Follow(roster, now_ns, effects);
  const auto found = watched_.find(connection);
  if (found == watched_.end()) return;
  found->second.broken =
      why.message().empty() ? "its control connection broke" : std::string(why.message());
  Ask(connection, found->second, now_ns, effects);
}

void Detector::Resume(ConnectionId connection, int64_t now_ns, RunEffects& effects) {
  const auto found = watched_.find(connection);
  if (found == watched_.end()) return;
  Watched& watched = found->second;
  effects.push_back(
      LogLine{Severity::kInfo, absl::StrCat("worker ", watched.name, " is connected again, ",
                                            Seconds(now_ns - watched.heard_ns),
                                            " after it was last heard: nothing is lost")});
  watched.broken.clear();
  watched.is_asked = false;
  watched.answer.reset();
  watched.heard_ns = now_ns;
  watched.heartbeats.Restart(now_ns);
}

void Detector::Follow(const Roster& roster, int64_t now_ns, RunEffects& effects) {
  std::erase_if(watched_, [&roster](const auto& entry) {
    const std::optional<int> device = roster.DeviceOf(entry.first);
    return !device.has_value() || roster.lost()[static_cast<size_t>(*device)];
  });
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    const Device& device = roster.devices()[i];
    if (roster.lost()[i] || watched_.count(device.connection) > 0) continue;
    Watched& watched = watched_[device.connection];
    watched.name = device.hello.name;
    watched.data_address = device.hello.data_address;
    watched.heard_ns = watched.progressed_ns = now_ns;
    watched.question_is_out = true;
    effects.push_back(ProbePort{device.connection, watched.data_address});
  }
}

void Detector::Forgive(int64_t stall_ns, int64_t now_ns, RunEffects& effects) {
  const bool is_news = stall_ns >= kLongStallNs;
  effects.push_back(LogLine{is_news ? Severity::kWarning : Severity::kDebug,
                            absl::StrCat("central itself did not run for ", Seconds(stall_ns),
                                         ": no worker was silent for that time")});
  for (auto& [connection, watched] : watched_) {
    // Times of last messages never lie in the future.
    watched.heard_ns = std::min(watched.heard_ns + stall_ns, now_ns);
    watched.progressed_ns = std::min(watched.progressed_ns + stall_ns, now_ns);
    watched.heartbeats.Restart(watched.heard_ns);
    watched.progresses.Restart(watched.progressed_ns);
  }
}

void Detector::Hear(Watched& watched, int64_t now_ns, RunEffects& effects) {
  if (!std::exchange(watched.is_asked, false)) return;
  watched.answer.reset();
  effects.push_back(
      LogLine{Severity::kWarning,
              absl::StrCat("worker ", watched.name, " was slow: it is heard again (usually every ",
                           Seconds(watched.heartbeats.median_ns()), "; last ",
                           Seconds(now_ns - watched.heard_ns), " ago)")});
}

void Detector::Ask(ConnectionId connection, Watched& watched, int64_t now_ns, RunEffects& effects) {
  if (!std::exchange(watched.is_asked, true)) {
    watched.answer.reset();
    watched.is_waited_for = false;
    watched.question_is_old = watched.question_is_out;
    const std::string what =
        watched.broken.empty() ? absl::StrCat("is silent for ", Seconds(now_ns - watched.heard_ns))
                               : absl::StrCat("has lost its connection (", watched.broken, ")");
    effects.push_back(LogLine{Severity::kInfo, absl::StrCat("worker ", watched.name, " ", what,
                                                            ": asking its data port")});
  }
  if (std::exchange(watched.question_is_out, true)) return;
  effects.push_back(ProbePort{connection, watched.data_address});
}

int64_t Detector::CutOffNs(const Watched& watched) const {
  const double patience_ns = static_cast<double>(SilenceLimit(watched)) * kCutOffFactor;
  return std::max(static_cast<int64_t>(patience_ns), price_.NsOf(watched.heard_ns));
}

void Detector::TellThatWaits(Watched& watched, int64_t now_ns, RunEffects& effects) const {
  const int64_t silence_ns = now_ns - watched.heard_ns;
  if (watched.answer != PortAnswer::kNone || watched.is_waited_for) return;
  if (static_cast<double>(silence_ns) < static_cast<double>(SilenceLimit(watched)) * kCutOffFactor)
    return;
  watched.is_waited_for = true;
  effects.push_back(
      LogLine{Severity::kWarning,
              absl::StrCat("worker ", watched.name, " is cut off for ", Seconds(silence_ns),
                           ": it is waited for until ", Seconds(CutOffNs(watched)),
                           ", since going on without it would take as long")});
}

std::optional<Detector::Finding> Detector::Judge(ConnectionId connection, const Watched& watched,
                                                 int64_t now_ns) const {
  if (!IsSilent(watched, now_ns)) return std::nullopt;
  const int64_t limit_ns = SilenceLimit(watched);
  const int64_t silence_ns = now_ns - watched.heard_ns;
  const std::string silence = absl::StrCat(
      watched.broken.empty() ? "" : absl::StrCat(watched.broken, "; "), "nothing came for ",
      Seconds(silence_ns), ", usually for ", Seconds(watched.heartbeats.median_ns()));
  if (watched.answer == PortAnswer::kRefused)
    return Finding{connection, Verdict::kDead,
                   absl::StrCat("dead: ", silence, ", and its data port is closed")};
  if (watched.answer == PortAnswer::kNone && silence_ns >= CutOffNs(watched))
    return Finding{connection, Verdict::kCutOff,
                   absl::StrCat("cut off: ", silence, ", and its host does not answer")};
  if (watched.answer == PortAnswer::kAnswered && silence_ns >= limit_ns + kStoppedNs)
    return Finding{connection, Verdict::kStopped,
                   absl::StrCat("stopped: ", silence, ", though its host answers")};
  return std::nullopt;
}

std::vector<Detector::Finding> Detector::Tick(const Roster& roster, int64_t now_ns,
                                              RunEffects& effects) {
  Follow(roster, now_ns, effects);
  if (due_ns_ != 0 && now_ns - due_ns_ > kOwnStallNs) Forgive(now_ns - due_ns_, now_ns, effects);
  std::vector<Finding> findings;
  for (auto& [connection, watched] : watched_) {
    if (IsSilent(watched, now_ns)) {
      Ask(connection, watched, now_ns, effects);
      if (auto finding = Judge(connection, watched, now_ns)) {
        findings.push_back(*finding);
      } else {
        TellThatWaits(watched, now_ns, effects);
      }
      continue;
    }
    Hear(watched, now_ns, effects);
    const int64_t stands_ns = now_ns - watched.progressed_ns;
    if (watched.phase == WorkerPhase::kIdle ||
        stands_ns < std::max(kStuckNs, watched.progresses.limit_ns()))
      continue;
    findings.push_back({connection, Verdict::kStuck,
                        absl::StrCat("stuck: it has been ", TextOf(watched.phase), " for ",
                                     Seconds(stands_ns), " without getting on")});
  }
  for (const Finding& finding : findings) watched_.erase(finding.connection);
  now_ns_ = now_ns;
  due_ns_ = now_ns + kTickNs;
  effects.push_back(SetTimer{due_ns_});
  return findings;
}

std::optional<Detector::Finding> Detector::Restarted(const Roster& roster,
                                                     const WorkerHello& hello) const {
  if (hello.incarnation == 0) return std::nullopt;
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    const Device& device = roster.devices()[i];
    if (roster.lost()[i] || device.hello.name != hello.name) continue;
    if (device.hello.incarnation == 0 || device.hello.incarnation == hello.incarnation) continue;
    const auto found = watched_.find(device.connection);
    if (found == watched_.end() || !IsSilent(found->second, now_ns_)) continue;
    return Finding{device.connection, Verdict::kRestarted,
                   absl::StrCat("restarted: another process says to be ", hello.name)};
  }
  return std::nullopt;
}

bool Detector::IsDialable(ConnectionId connection) const {
  const auto found = watched_.find(connection);
  return found == watched_.end() ||
         found->second.usual.value_or(PortAnswer::kAnswered) == PortAnswer::kAnswered;
}

int64_t Detector::progress() const {
  int64_t sum = 0;
  for (const auto& [connection, watched] : watched_)
    sum += watched.progress + static_cast<int64_t>(watched.phase);
  return sum;
}

}  // namespace runnel
