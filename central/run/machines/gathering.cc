#include "central/run/machines/gathering.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

bool Gathering::Begins(const Roster& roster, int64_t now_ns) {
  if (!roster.has_least()) {
    enough_ns_.reset();
    return false;
  }
  if (!enough_ns_.has_value()) enough_ns_ = now_ns;
  return now_ns - *enough_ns_ >= kGraceNs;
}

absl::Status Gathering::Lose(int device, const absl::Status& why, const Roster& roster,
                             RunEffects& effects) {
  const std::string& name = roster.name(device);
  const absl::Status lost = absl::UnavailableError(
      absl::StrCat("worker ", name, " was lost before the first plan (", why.message(), ")"));
  if (roster.device(device).local) return StartAgain(name, lost, effects);
  effects.push_back(
      LogLine{Severity::kWarning, absl::StrCat(lost.message(), ": the start goes on without it")});
  return absl::OkStatus();
}

absl::Status Gathering::StartAgain(const std::string& name, const absl::Status& why,
                                   RunEffects& effects) {
  const std::optional<int64_t> pause_ms = starts_.NextPauseMs();
  if (!pause_ms.has_value()) {
    return absl::UnavailableError(absl::StrCat(why.message(), ", as were others of this host for ",
                                               StartAttempts::kPatienceMs / 60'000,
                                               " minutes: see their logs"));
  }
  effects.push_back(
      LogLine{Severity::kWarning, absl::StrCat(why.message(), ": ", name, " is started again")});
  effects.push_back(StartLocalWorker{name, *pause_ms});
  return absl::OkStatus();
}

void Gathering::Wait(absl::Status why, const Roster& roster, RunEffects& effects) {
  if (!waits_ || why != why_) {
    effects.push_back(LogLine{
        why.ok() ? Severity::kInfo : Severity::kWarning,
        absl::StrCat("waiting: ", roster.MissingText(), why.ok() ? "" : "; ", why.message())});
  }
  waits_ = true;
  why_ = std::move(why);
}

absl::Status Gathering::CheckPatience(const Roster& roster, int64_t now_ns) {
  if (!waits_) return absl::OkStatus();
  if (!waits_ns_.has_value()) waits_ns_ = now_ns;
  if (now_ns - *waits_ns_ < patience_ns_) return absl::OkStatus();
  const int64_t patience_s = patience_ns_ / 1'000'000'000;
  if (why_.ok()) return roster.TimeoutError(patience_s);
  return absl::Status(why_.code(),
                      absl::StrCat(why_.message(), "; nobody who would do has come in ", patience_s,
                                   " s (--worker-timeout-s)"));
}

}  // namespace runnel
