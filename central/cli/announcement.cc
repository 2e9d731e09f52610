#include "central/cli/announcement.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

constexpr char kProgram[] = "/avahi-publish-service";

// Empty: it is not in PATH.
std::string FindProgram() {
  const char* path = std::getenv("PATH");
  for (const absl::string_view folder :
       absl::StrSplit(path == nullptr ? "" : path, ':', absl::SkipEmpty())) {
    std::string program = absl::StrCat(folder, kProgram);
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

std::string HostName() {
  char name[256] = "central";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

std::unique_ptr<Announcement> Announcement::Begin(const Address& door) {
  if (door.is_loopback()) return nullptr;
  const std::string program = FindProgram();
  if (program.empty()) return nullptr;
  WorkerCommand command;
  // Its lines are no user's concern: where its daemon does not run, nothing is announced.
  command.binary = "/bin/sh";
  command.arguments = {"-c",
                       "exec \"$0\" \"$@\" >/dev/null 2>&1",
                       program,
                       "Runnel on " + HostName(),
                       "_runnel-join._tcp",
                       absl::StrCat(door.port)};
  if (!door.is_wildcard()) command.arguments.push_back("address=" + door.host);
  absl::StatusOr<std::unique_ptr<WorkerProcess>> process = WorkerProcess::Start(command);
  if (!process.ok()) return nullptr;
  return std::unique_ptr<Announcement>(new Announcement(*std::move(process)));
}

}  // namespace runnel
