#include "central/run/workers/local_workers.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <random>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/certificate.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

constexpr int64_t kGraceMs = 3000;  // for all of them together

// Flags that let a local worker speak with workers that dial central at `control_address` from
// elsewhere, which may be its neighbours. Central itself listens there, so it is allowed.
absl::StatusOr<std::vector<std::string>> NetworkArguments(const std::string& control_address,
                                                          bool encrypts) {
  RUNNEL_ASSIGN_OR_RETURN(Address address, ParseAddress(control_address));
  if (address.is_loopback()) return std::vector<std::string>();
  std::vector<std::string> arguments;
  if (!encrypts) arguments = {"--insecure-network"};
  address.port = 0;
  if (!address.is_wildcard()) arguments.insert(arguments.end(), {"--listen", address.ToString()});
  return arguments;
}

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> JoinCommands(const Enrolment& enrolment,
                                                      const std::string& control_address) {
  std::vector<std::string> commands = {absl::StrCat("runnel-worker --central ", control_address)};
  if (!enrolment.encrypts()) return commands;
  RUNNEL_ASSIGN_OR_RETURN(const std::string door, enrolment.open_door(control_address));
  commands.push_back(absl::StrCat("runnel-worker --join TOKEN@", door));
  return commands;
}

std::string RandomSecret() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

absl::Status LocalWorkers::Start(int64_t count, const LocalWorkerOptions& options,
                                 const std::string& control_address, const Enrolment& enrolment) {
  if (count == 0) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(binary_, FindWorkerBinary());
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<std::string> network,
                          NetworkArguments(control_address, enrolment.encrypts()));
  enrolment_ = enrolment;
  threads_ = options.threads;
  arguments_ = {"--central", control_address, "--threads", absl::StrCat(threads_)};
  if (!options.backend_options.empty()) {
    arguments_.insert(arguments_.end(), {"--backend-option", options.backend_options.text()});
  }
  arguments_.insert(arguments_.end(), network.begin(), network.end());
  for (int64_t i = 0; i < count; ++i)
    RUNNEL_RETURN_IF_ERROR(StartOne(absl::StrFormat("local-%03d", i)));
  return absl::OkStatus();
}

absl::Status LocalWorkers::StartOne(const std::string& name) {
  WorkerCommand command;
  command.binary = binary_;
  command.arguments = arguments_;
  command.arguments.insert(command.arguments.end(), {"--name", name});
  command.threads = threads_;
  command.log_level = "warn";
  secrets_.push_back(RandomSecret());
  command.environment = {{kWorkerSecretVariable, secrets_.back()}};
  if (enrolment_.encrypts()) {
    RUNNEL_ASSIGN_OR_RETURN(const Identity identity, enrolment_.issue_identity(name));
    command.environment.emplace_back(kWorkerIdentityVariable, identity.ToString());
  }
  RUNNEL_ASSIGN_OR_RETURN(auto process, WorkerProcess::Start(command));
  processes_.push_back(std::move(process));
  names_.push_back(name);
  return absl::OkStatus();
}

absl::Status LocalWorkers::StartAgain(const std::string& name) {
  --starts_to_come_;
  // A stopped process would come back under this name.
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] != name) continue;
    if (!processes_[i]->Poll().has_value()) told_.insert(i);
    processes_[i]->Terminate(/*grace_ms=*/0);
  }
  return StartOne(name);
}

bool LocalWorkers::Contains(const WorkerHello& hello) const {
  return std::find(secrets_.begin(), secrets_.end(), hello.secret) != secrets_.end();
}

std::vector<LocalWorkers::EndedEarly> LocalWorkers::FindEnded() const {
  std::vector<EndedEarly> ended;
  if (starts_to_come_ > 0) return ended;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (std::find(names_.begin() + static_cast<int64_t>(i) + 1, names_.end(), names_[i]) !=
        names_.end())
      continue;  // it was started again
    const std::optional<ProcessExit> exit = processes_[i]->Poll();
    if (!exit.has_value()) continue;
    ended.push_back({names_[i], absl::Status(exit->signaled ? absl::StatusCode::kUnavailable
                                                            : absl::StatusCode::kAborted,
                                             absl::StrCat("a local worker ended with ",
                                                          exit->ToString(), " before it joined"))});
  }
  return ended;
}

std::vector<std::string> LocalWorkers::TakeEnds() {
  std::vector<std::string> lines;
  for (size_t i = 0; i < processes_.size(); ++i) {
    const std::optional<ProcessExit> exit = processes_[i]->Poll();
    if (!exit.has_value() || exit->ok() || !told_.insert(i).second) continue;
    std::string line = absl::StrCat("worker ", names_[i], " ended with ", exit->ToString());
    if (exit->signaled && exit->code == SIGKILL) {
      absl::StrAppend(&line,
                      ": if nobody killed it, the system did, out of memory: take a smaller "
                      "--batch-size or more workers on other hosts");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

void LocalWorkers::AwaitEnds() {
  const int64_t until_ms = NowMs() + kGraceMs;
  for (const auto& process : processes_) process->Wait(std::max<int64_t>(until_ms - NowMs(), 0));
}

void LocalWorkers::Terminate() {
  const int64_t until_ms = NowMs() + kGraceMs;
  for (const auto& process : processes_)
    process->Terminate(std::max<int64_t>(until_ms - NowMs(), 0));
}

}  // namespace runnel
