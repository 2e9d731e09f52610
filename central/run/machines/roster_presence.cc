// The roster's part that answers who is there and who is missing.

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/run/machines/roster.h"

namespace runnel {

std::optional<int> Roster::MissingLocal() const {
  std::optional<int> missing, drained;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!devices_[i].local) continue;
    if (!lost_[i] && devices_[i].stays()) return std::nullopt;
    if (!lost_[i]) continue;
    std::optional<int>& seat = devices_[i].released ? drained : missing;
    if (!seat.has_value()) seat = static_cast<int>(i);
  }
  return missing.has_value() ? missing : drained;
}

std::optional<int> Roster::LostLocal() const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].local && lost_[i] && !devices_[i].released) return static_cast<int>(i);
  }
  return std::nullopt;
}

int64_t Roster::dialling_workers() const {
  int64_t count = 0;
  for (size_t i = 0; i < devices_.size(); ++i)
    count += !devices_[i].local && devices_[i].stays() && !lost_[i] ? 1 : 0;
  return count;
}

bool Roster::IsLastLocal(int number) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const bool is_another = devices_[i].local && devices_[i].stays() && !lost_[i];
    if (is_another && static_cast<int>(i) != number) return false;
  }
  return device(number).local;
}

absl::Status Roster::TimeoutError(int64_t waited_s) const {
  return absl::DeadlineExceededError(
      absl::StrCat("after ", waited_s, " s ", MissingText(),
                   ": start the others, or ask for fewer (--workers, or --at-least)"));
}

int64_t Roster::CountPresent(bool local) const {
  int64_t count = 0;
  for (size_t i = 0; i < devices_.size(); ++i)
    count += devices_[i].local == local && !lost_[i] ? 1 : 0;
  return count;
}

bool Roster::IsPresent(absl::string_view name) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].hello.name == name && !lost_[i]) return true;
  }
  return false;
}

bool Roster::has_least() const {
  return CountPresent(/*local=*/true) >= options_.local_workers &&
         CountPresent(true) + CountPresent(false) >= options_.least_workers();
}

std::string Roster::MissingText() const {
  std::set<std::string> there, gone = left_early_;
  for (size_t i = 0; i < devices_.size(); ++i)
    (lost_[i] ? gone : there).insert(devices_[i].hello.name);
  std::string text = absl::StrCat(there.size(), " of ", options_.workers(),
                                  there.size() == 1 ? " workers is there" : " workers are there");
  if (!there.empty()) absl::StrAppend(&text, " (", absl::StrJoin(there, ", "), ")");
  if (options_.least_workers() < options_.workers())
    absl::StrAppend(&text, ", ", options_.least_workers(), " are needed");
  const int64_t locals = options_.local_workers - CountPresent(/*local=*/true);
  if (locals > 0) absl::StrAppend(&text, "; ", locals, " of this host missing");
  if (!gone.empty()) absl::StrAppend(&text, "; gone again: ", absl::StrJoin(gone, ", "));
  return text;
}

std::string Roster::HereText() const {
  const int64_t here = CountPresent(/*local=*/false);
  const std::string of =
      options_.is_waiting_room ? "" : absl::StrCat(" of ", options_.dialling_workers);
  return absl::StrCat(here, of, here == 1 ? " is" : " are", " here");
}

void Roster::TellAwaiting(RunEffects& effects) const {
  const Awaiting awaiting{CountPresent(/*local=*/false), options_.dialling_workers};
  for (const Device& device : devices_) {
    if (!device.local) effects.push_back(SendControl{device.connection, awaiting});
  }
}

std::optional<int> Roster::DeviceOf(ConnectionId connection) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].connection == connection) return static_cast<int>(i);
  }
  return std::nullopt;
}

}  // namespace runnel
