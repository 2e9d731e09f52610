#pragma once

// Files by which the centrals that run on this host are found: orders (`drain`, `devices`) need no
// address. A file lies beside the secrets (join_secret.h), has the control address, and is locked
// as long as its central lives: one that was killed leaves a file that nobody holds.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace runnel {

// A central as others of its user see it.
struct ShownCentral {
  std::string dialled;  // by orders of this host
  std::string listens;
  bool waits = false;  // it has no run, and makes way for one
};

// Shows a central while it lives. Any thread.
class RunningCentral {
 public:
  // control_address: where it listens; orders dial wildcard addresses as loopback ones. waits: it
  // has no run, and makes way for one.
  // FailedPrecondition: the file cannot be made; PermissionDenied: the folder belongs to somebody
  // else.
  static absl::StatusOr<std::unique_ptr<RunningCentral>> Show(const std::string& folder,
                                                              const std::string& control_address,
                                                              bool waits = false);
  ~RunningCentral();
  RunningCentral(const RunningCentral&) = delete;
  RunningCentral& operator=(const RunningCentral&) = delete;

 private:
  RunningCentral(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;
};

// The control address of the only central of this user on this host. NotFound: there is none.
// InvalidArgument: there are several; the text names them.
absl::StatusOr<std::string> FindRunningCentral(const std::string& folder);
// The only one of them that waits for a run. Errors likewise.
absl::StatusOr<ShownCentral> FindWaitingCentral(const std::string& folder);

}  // namespace runnel
