#include "central/run/machines/roster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/recipe_family.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

bool Contains(const std::vector<std::string>& names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Largest number of devices in a plan.
constexpr size_t kMaxDevices = 1024;
// Different refusals that are logged.
constexpr size_t kMaxLoggedRefusals = 100;

void SendAway(ConnectionId connection, Refused refused, RunEffects& effects) {
  effects.push_back(SendControl{connection, std::move(refused)});
  effects.push_back(CloseControl{connection});
}

// Two devices of one name: neither of them will have another one by itself.
bool AreTwoDevices(const WorkerHello& a, const WorkerHello& b) {
  return !a.device_id.empty() && !b.device_id.empty() && a.device_id != b.device_id;
}

// Whether other hosts reach it. What is no address leads nowhere either.
bool IsReachable(const std::string& data_address) {
  const absl::StatusOr<Address> address = ParseAddress(data_address);
  return address.ok() && !address->is_loopback() && !address->is_wildcard();
}

}  // namespace

std::vector<std::string> BackendFamilies(const std::string& backend) {
  std::vector<std::string> families;
  for (absl::string_view one : absl::StrSplit(backend.substr(0, backend.find('@')), ','))
    families.emplace_back(one.substr(0, one.find(':')));
  return families;
}

bool AreAlike(const WorkerHello& a, const WorkerHello& b) {
  return !a.device_class.empty() && a.device_class == b.device_class &&
         a.numerics_class == b.numerics_class && a.backend == b.backend;
}

// A service that is started again and again is refused again and again: one line is enough.
void Roster::Refuse(ConnectionId connection, Refused refused, RunEffects& effects) {
  const std::string& reason = refused.reason;
  if (logged_refusals_.size() < kMaxLoggedRefusals && logged_refusals_.insert(reason).second)
    effects.push_back(LogLine{Severity::kWarning, absl::StrCat("refused a worker: ", reason)});
  SendAway(connection, std::move(refused), effects);
}

absl::Status Roster::CheckFits(const WorkerHello& hello) const {
  if (!IsOffered(options_.recipe, hello.recipes)) {
    return absl::InvalidArgumentError(absl::StrCat("--recipe ", options_.recipe, ": worker ",
                                                   hello.name, " has ",
                                                   absl::StrJoin(hello.recipes, ", ")));
  }
  // A backend of several processors needs each of them.
  for (const std::string& backend : BackendFamilies(options_.backend)) {
    if (backend == "auto" || Contains(hello.backends, backend)) continue;
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

// Reasons that hold for any seat.
std::optional<Refused> Roster::ReasonToKeepOut(const WorkerHello& hello) const {
  if (hello.protocol_version != kProtocolVersion) {
    return Refused{absl::StrCat(
        "worker ", hello.name, " speaks protocol version ", hello.protocol_version,
        ", this central speaks ", kProtocolVersion, ". ",
        hello.protocol_version < kProtocolVersion
            ? "Update it to central's release: sudo apt install ./runnel-worker_*.deb there, or "
              "copy that release's static file"
            : "Update central to its release: sudo apt install ./runnel-central_*.deb "
              "./runnel-worker_*.deb on this host")};
  }
  if (options_.loopback_only || IsReachable(hello.data_address)) return std::nullopt;
  return Refused{absl::StrCat("worker ", hello.name, " listens for data at ", hello.data_address,
                              ", where no other host reaches it: dial central by its network "
                              "address, or give the worker --listen ADDRESS:0")};
}

// Before the run begins. None: it is welcome.
std::optional<Refused> Roster::ReasonToRefuse(const WorkerHello& hello, bool local) const {
  std::optional<Refused> refused = ReasonToKeepOut(hello);
  // A worker that central started is on its host.
  if (refused.has_value() && !(local && hello.protocol_version == kProtocolVersion)) return refused;
  for (const Device& device : devices_) {
    if (device.hello.name != hello.name || complete_) continue;
    return Refused{absl::StrCat("there is a worker named ", hello.name,
                                " already: give this one another --name"),
                   AreTwoDevices(device.hello, hello)};
  }
  if (options_.is_waiting_room && devices_.size() < kMaxDevices) return std::nullopt;
  const int seats = local ? options_.local_workers : options_.dialling_workers;
  const auto taken = std::count_if(devices_.begin(), devices_.end(),
                                   [local](const Device& d) { return d.local == local; });
  if (!complete_ && taken < seats) return std::nullopt;
  return Refused{absl::StrCat("worker ", hello.name, " came when the run had its ", seats,
                              local ? " local" : "", " workers"),
                 /*is_final=*/false};
}

absl::StatusOr<bool> Roster::Join(ConnectionId connection, const WorkerHello& hello, bool local,
                                  RunEffects& effects) {
  if (std::optional<Refused> refused = ReasonToRefuse(hello, local); refused.has_value()) {
    Refuse(connection, *std::move(refused), effects);
    return false;
  }
  if (absl::Status status = CheckFits(hello); !status.ok()) {
    // A worker from elsewhere may be replaced by a better one. Our own will not change: the run
    // ends with the reason, so that no warning is needed.
    if (local) {
      SendAway(connection, Refused{std::string(status.message())}, effects);
      return status;
    }
    Refuse(connection, Refused{std::string(status.message())}, effects);
    return false;
  }
  devices_.push_back({connection, hello, local});
  lost_.push_back(false);
  left_early_.erase(hello.name);
  const bool is_last =
      !options_.is_waiting_room && static_cast<int>(devices_.size()) == options_.workers();
  if (!local)
    effects.push_back(
        LogLine{Severity::kInfo, absl::StrCat("worker ", hello.name, " has joined: ", HereText())});
  if (is_last) {
    Complete(effects);
  } else {
    TellAwaiting(effects);
  }
  return is_last;
}

void Roster::Complete(RunEffects& effects) {
  complete_ = true;
  std::sort(devices_.begin(), devices_.end(), [](const Device& a, const Device& b) {
    if (a.local != b.local) return a.local;
    return a.hello.name < b.hello.name;
  });
  for (size_t i = 0; i < devices_.size(); ++i) {
    effects.push_back(SendControl{devices_[i].connection, WelcomeTo(static_cast<int32_t>(i))});
  }
}

std::optional<ConnectionId> Roster::StreamOf(const WorkerHello& hello) const {
  if (hello.device_id.empty()) return std::nullopt;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const WorkerHello& known = devices_[i].hello;
    if (!lost_[i] && known.name == hello.name && known.device_id == hello.device_id)
      return devices_[i].connection;
  }
  return std::nullopt;
}

absl::StatusOr<size_t> Roster::SeatOf(const WorkerHello& hello,
                                      absl::FunctionRef<bool(int)> has_stage) const {
  size_t seat = 0;
  while (seat < devices_.size() && devices_[seat].hello.name != hello.name) ++seat;
  if (seat < devices_.size() || seat < kMaxDevices) return seat;
  // Workers without a name of their own have another one at each start.
  for (seat = 0; seat < devices_.size(); ++seat) {
    const Device& device = devices_[seat];
    const bool is_free = lost_[seat] && !device.local && !has_stage(static_cast<int>(seat));
    if (is_free && AreAlike(device.hello, hello)) return seat;
  }
  return absl::ResourceExhaustedError(absl::StrCat("the run has ", devices_.size(), " workers"));
}

std::optional<int> Roster::Enter(ConnectionId connection, const WorkerHello& hello,
                                 absl::FunctionRef<bool(int)> has_stage, RunEffects& effects) {
  std::optional<Refused> refused = ReasonToKeepOut(hello);
  const absl::StatusOr<size_t> free = SeatOf(hello, has_stage);
  const size_t seat = free.value_or(devices_.size());
  const bool is_known = seat < devices_.size();
  if (!refused.has_value() && is_known && (!lost_[seat] || devices_[seat].local)) {
    refused = Refused{absl::StrCat("there is a worker named ", hello.name,
                                   " already: give this one another --name"),
                      AreTwoDevices(devices_[seat].hello, hello)};
  }
  const bool was_drained =
      is_known && devices_[seat].released && devices_[seat].hello.incarnation == hello.incarnation;
  if (!refused.has_value() && was_drained) {
    refused = Refused{absl::StrCat("worker ", hello.name,
                                   " was drained: it is taken again if it is started again"),
                      /*is_final=*/false};
  }
  if (!refused.has_value() && !free.ok())
    refused = Refused{std::string(free.status().message()), false};
  if (const absl::Status fits = CheckFits(hello); !refused.has_value() && !fits.ok())
    refused = Refused{std::string(fits.message())};
  if (refused.has_value()) {
    Refuse(connection, *std::move(refused), effects);
    return std::nullopt;
  }
  if (!is_known) {
    devices_.emplace_back();
    lost_.push_back(true);
  }
  Device& device = devices_[seat];
  device.connection = connection;
  device.hello = hello;
  device.leaving = device.released = device.barred = false;
  lost_[seat] = false;
  effects.push_back(SendControl{connection, WelcomeTo(static_cast<int32_t>(seat))});
  return static_cast<int>(seat);
}

void Roster::Release(int number, RunEffects& effects) {
  Device& device = devices_[static_cast<size_t>(number)];
  device.released = true;
  effects.push_back(SendControl{device.connection, runnel::Release{}});
}

bool Roster::Bar(int number) {
  if (has_local_seats() && IsLastLocal(number)) return false;
  devices_[static_cast<size_t>(number)].barred = true;
  return true;
}

absl::Status Roster::BeginLeaving(int number, bool has_stage, const std::string& reason,
                                  RunEffects& effects) {
  if (device(number).leaving) return absl::OkStatus();
  if (has_local_seats() && IsLastLocal(number)) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", name(number),
                     " cannot leave: it is the last one on central's host, where stage 0 must be"));
  }
  SetLeaving(number, true);
  if (!has_stage) {
    Release(number, effects);
    return absl::OkStatus();
  }
  effects.push_back(
      LogLine{Severity::kInfo, absl::StrCat("worker ", name(number), " leaves",
                                            reason.empty() ? "" : absl::StrCat(" (", reason, ")"),
                                            ": its layers move to others at the next barrier")});
  return absl::OkStatus();
}

std::vector<std::string> Roster::LeavingStages(const Plan& plan) const {
  std::vector<std::string> names;
  for (const int number : plan.devices()) {
    const Device& one = device(number);
    if (one.leaving) names.push_back(one.hello.name);
  }
  return names;
}

void Roster::ReleaseLeft(const Plan& plan, RunEffects& effects) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto number = static_cast<int>(i);
    if (devices_[i].leaving && !devices_[i].released && !lost_[i] && !plan.Uses(number))
      Release(number, effects);
  }
}

absl::Status Roster::FailureOf(int number, absl::string_view reason, bool unfit) const {
  std::string what = absl::StrCat("worker ", name(number), ": ", reason);
  return unfit ? absl::InvalidArgumentError(what) : absl::AbortedError(what);
}

const std::string& Roster::BackendOf(int number) const {
  if (options_.backend != "auto") return options_.backend;
  const Device& one = device(number);
  const bool is_open = one.hello.backend == "auto" && !one.measured_backend.empty();
  return is_open ? one.measured_backend : one.hello.backend;
}

bool Roster::IsBackendNamed(int number) const {
  return options_.backend != "auto" || device(number).hello.backend != "auto";
}

std::optional<int> Roster::Leave(ConnectionId connection, RunEffects& effects) {
  const std::optional<int> number = DeviceOf(connection);
  if (!number.has_value()) return std::nullopt;
  const auto at = static_cast<size_t>(*number);
  if (lost_[at]) return std::nullopt;
  if (complete_) {
    lost_[at] = true;
    return number;
  }
  const std::string name = devices_[at].hello.name;
  if (devices_[at].local) effects.push_back(StartLocalWorker{name});
  devices_.erase(devices_.begin() + *number);
  lost_.erase(lost_.begin() + *number);
  if (options_.is_waiting_room) {
    effects.push_back(
        LogLine{Severity::kInfo, absl::StrCat("worker ", name, " has left: ", HereText())});
  } else {
    left_early_.insert(name);
    effects.push_back(
        LogLine{Severity::kWarning, absl::StrCat("worker ", name, " left before the run began")});
  }
  TellAwaiting(effects);
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
    device.leaving = device.released = device.barred = false;
    lost_[i] = false;
    effects.push_back(SendControl{connection, WelcomeTo(static_cast<int32_t>(i))});
    return static_cast<int>(i);
  }
  return std::nullopt;
}

void Roster::ReleaseAll(RunEffects& effects) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (!lost_[i]) effects.push_back(SendControl{devices_[i].connection, runnel::Release{}});
  }
}

void Roster::SetMeasured(int number, const ProfileReport& report) {
  Device& device = devices_[static_cast<size_t>(number)];
  const DeviceCosts& costs = report.costs;
  device.processor_share = report.processor_share;
  device.measured_backend = report.backend;
  device.backend_choice = report.choice;
  if (!report.numerics_class.empty()) device.numerics_class = report.numerics_class;
  const auto update = [](double& known, double measured) {
    if (measured > 0) known = measured;
  };
  update(device.costs.forward_share, costs.forward_share);
  update(device.costs.input_gradient_share, costs.input_gradient_share);
  update(device.costs.coder_seconds_per_byte, costs.coder_seconds_per_byte);
  update(device.costs.frame_seconds, costs.frame_seconds);
  update(device.costs.link_byte_seconds, costs.link_byte_seconds);
}

void Roster::SetProcessors(int number, const ProcessorList& list) {
  devices_[static_cast<size_t>(number)].hello.processor_list = list.processors;
}

const std::string& Roster::ClassOf(int number) const {
  static const std::string unknown;
  const Device& known = device(number);
  if (!known.numerics_class.empty()) return known.numerics_class;
  return options_.backend == "auto" ? known.hello.numerics_class : unknown;
}

void Roster::SetClasses(const PlanDecided& decided, bool exact, RunEffects& effects) {
  std::set<std::string> classes;
  for (const int device : decided.plan.devices()) {
    const auto number = static_cast<size_t>(device);
    devices_[number].numerics_class = decided.devices[number].numerics_class;
    classes.insert(devices_[number].numerics_class);
  }
  if (exact || classes.size() < 2 || std::exchange(warned_of_classes_, true)) return;
  effects.push_back(LogLine{
      Severity::kWarning,
      absl::StrCat("stages compute in several numerics classes (", absl::StrJoin(classes, "; "),
                   "): the run is not reproducible bit for bit if layers move")});
}

}  // namespace runnel
