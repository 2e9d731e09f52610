#include "central/run/machines/roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/recipe_family.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

bool Contains(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Different refusals that are logged.
constexpr size_t kMaxLoggedRefusals = 100;

void SendAway(ConnectionId connection, std::string reason, RunEffects& effects) {
  effects.push_back(SendControl{connection, Refused{std::move(reason)}});
  effects.push_back(CloseControl{connection});
}

// Whether other hosts reach it. What is no address leads nowhere either.
bool IsReachable(const std::string& data_address) {
  const absl::StatusOr<Address> address = ParseAddress(data_address);
  return address.ok() && !address->is_loopback() && !address->is_wildcard();
}

}  // namespace

// A service that is started again and again is refused again and again: one line is enough.
void Roster::Refuse(ConnectionId connection, std::string reason, RunEffects& effects) {
  if (logged_refusals_.size() < kMaxLoggedRefusals && logged_refusals_.insert(reason).second)
    effects.push_back(LogLine{Severity::kWarning, absl::StrCat("refused a worker: ", reason)});
  SendAway(connection, std::move(reason), effects);
}

absl::Status Roster::CheckFits(const WorkerHello& hello) const {
  if (!IsOffered(options_.recipe, hello.recipes)) {
    return absl::InvalidArgumentError(absl::StrCat("--recipe ", options_.recipe, ": worker ",
                                                   hello.name, " has ",
                                                   absl::StrJoin(hello.recipes, ", ")));
  }
  const std::string family = options_.backend.substr(0, options_.backend.find(':'));
  if (options_.backend != "auto" && !Contains(hello.backends, options_.backend) &&
      !Contains(hello.backends, family)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend ", options_.backend, ": worker ", hello.name, " has ",
                     absl::StrJoin(hello.backends, ", "), " (or auto)"));
  }
  for (const CodecId& codec : options_.codecs) {
    if (absl::Status status = CheckHasCodec(hello.codecs, codec); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", hello.name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

// Apart from what it can do. Empty: none.
std::string Roster::ReasonToRefuse(const WorkerHello& hello, bool local) const {
  if (hello.protocol_version != kProtocolVersion) {
    return absl::StrCat("worker ", hello.name, " speaks protocol version ", hello.protocol_version,
                        ", this central speaks ", kProtocolVersion,
                        ": install the same release on both");
  }
  for (const Device& device : devices_) {
    if (device.hello.name != hello.name || complete_) continue;
    return absl::StrCat("there is a worker named ", hello.name,
                        " already: give this one another --name");
  }
  if (!local && !options_.loopback_only && !IsReachable(hello.data_address)) {
    return absl::StrCat("worker ", hello.name, " listens for data at ", hello.data_address,
                        ", where no other host reaches it: dial central by its network address, or "
                        "give the worker --listen ADDRESS:0");
  }
  const int seats = local ? options_.local_workers : options_.dialling_workers;
  const auto taken = std::count_if(devices_.begin(), devices_.end(),
                                   [local](const Device& d) { return d.local == local; });
  if (!complete_ && taken < seats) return "";
  return absl::StrCat("worker ", hello.name, " came when the run had its ", seats,
                      local ? " local" : "", " workers");
}

absl::StatusOr<bool> Roster::Join(ConnectionId connection, const WorkerHello& hello, bool local,
                                  RunEffects& effects) {
  if (std::string reason = ReasonToRefuse(hello, local); !reason.empty()) {
    Refuse(connection, std::move(reason), effects);
    return false;
  }
  if (absl::Status status = CheckFits(hello); !status.ok()) {
    // A worker from elsewhere may be replaced by a better one. Our own will not change: the run
    // ends with the reason, so that no warning is needed.
    if (local) {
      SendAway(connection, std::string(status.message()), effects);
      return status;
    }
    Refuse(connection, std::string(status.message()), effects);
    return false;
  }
  devices_.push_back({connection, hello, local});
  lost_.push_back(false);
  if (static_cast<int>(devices_.size()) < options_.workers()) return false;
  Complete(effects);
  return true;
}

void Roster::Complete(RunEffects& effects) {
  complete_ = true;
  std::sort(devices_.begin(), devices_.end(), [](const Device& a, const Device& b) {
    if (a.local != b.local) return a.local;
    return a.hello.name < b.hello.name;
  });
  for (size_t i = 0; i < devices_.size(); ++i) {
    effects.push_back(
        SendControl{devices_[i].connection, Welcome{DeviceId(static_cast<int32_t>(i))}});
  }
}

std::optional<int> Roster::Leave(ConnectionId connection, RunEffects& effects) {
  const std::optional<int> number = DeviceOf(connection);
  if (!number.has_value()) return std::nullopt;
  const auto at = static_cast<size_t>(*number);
  if (complete_ || devices_[at].local) {
    lost_[at] = true;
    return number;
  }
  effects.push_back(LogLine{Severity::kWarning, absl::StrCat("worker ", devices_[at].hello.name,
                                                             " left before the run began")});
  devices_.erase(devices_.begin() + *number);
  lost_.erase(lost_.begin() + *number);
  return std::nullopt;
}

absl::StatusOr<std::optional<int>> Roster::Return(ConnectionId connection, const WorkerHello& hello,
                                                  RunEffects& effects) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    if (!lost_[i] || !device.local || device.hello.name != hello.name) continue;
    RUNNEL_RETURN_IF_ERROR(CheckFits(hello));
    device.connection = connection;
    device.hello = hello;
    lost_[i] = false;
    effects.push_back(SendControl{connection, Welcome{DeviceId(static_cast<int32_t>(i))}});
    return static_cast<int>(i);
  }
  return std::nullopt;
}

std::optional<int> Roster::MissingLocal() const {
  std::optional<int> missing;
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!devices_[i].local) continue;
    if (!lost_[i]) return std::nullopt;
    if (!missing.has_value()) missing = static_cast<int>(i);
  }
  return missing;
}

void Roster::ReleaseAll(RunEffects& effects) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!lost_[i]) effects.push_back(SendControl{devices_[i].connection, Release{}});
  }
}

absl::Status Roster::TimeoutError(int64_t waited_s) const {
  return absl::DeadlineExceededError(absl::StrCat(devices_.size(), " of ", options_.workers(),
                                                  " workers joined within ", waited_s,
                                                  " s: start the others, or ask for fewer"));
}

std::optional<int> Roster::DeviceOf(ConnectionId connection) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].connection == connection) return static_cast<int>(i);
  }
  return std::nullopt;
}

void Roster::SetMeasured(int number, double processor_share, const DeviceCosts& costs) {
  Device& device = devices_[static_cast<size_t>(number)];
  device.processor_share = processor_share;
  const auto update = [](double& known, double measured) {
    if (measured > 0) known = measured;
  };
  update(device.costs.forward_share, costs.forward_share);
  update(device.costs.input_gradient_share, costs.input_gradient_share);
  update(device.costs.coder_seconds_per_byte, costs.coder_seconds_per_byte);
  update(device.costs.frame_seconds, costs.frame_seconds);
  update(device.costs.link_byte_seconds, costs.link_byte_seconds);
}

}  // namespace runnel
