#include "proto/transport/grpc/security/running_central.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/identity.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

// Of a file's name: the port follows.
constexpr char kPrefix[] = "central-";
// Behind the addresses of a central that has no run.
constexpr char kWaits[] = "waits";
constexpr size_t kMaxAddressBytes = 1024;

absl::Status FileError(absl::string_view what, const std::string& path) {
  return absl::FailedPreconditionError(absl::StrCat(what, " ", path, ": ", strerror(errno)));
}

// Where orders of this host reach who listens there.
absl::StatusOr<std::string> DialledAddress(const std::string& listened) {
  RUNNEL_ASSIGN_OR_RETURN(Address address, ParseAddress(listened));
  if (address.host == "0.0.0.0") address.host = "127.0.0.1";
  if (address.host == "::") address.host = "::1";
  return address.ToString();
}

// What the file of a central says, a line each. Empty: nobody holds it, or it is not ours.
ShownCentral CentralIn(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return {};
  struct stat info = {};
  const bool is_ours = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
  const bool is_held = is_ours && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  std::string text(kMaxAddressBytes, '\0');
  const ssize_t got = is_held ? read(fd, text.data(), text.size()) : 0;
  close(fd);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.size() < 2 || !ParseAddress(lines[0]).ok() || !ParseAddress(lines[1]).ok()) return {};
  return {lines[0], lines[1], lines.size() > 2 && lines[2] == kWaits};
}

std::vector<ShownCentral> AllShown(const std::string& folder) {
  std::vector<ShownCentral> centrals;
  if (DIR* const open_folder = opendir(folder.c_str()); open_folder != nullptr) {
    while (const dirent* entry = readdir(open_folder)) {
      if (!absl::StartsWith(entry->d_name, kPrefix)) continue;
      ShownCentral central = CentralIn(absl::StrCat(folder, "/", entry->d_name));
      if (!central.dialled.empty()) centrals.push_back(std::move(central));
    }
    closedir(open_folder);
  }
  return centrals;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunningCentral>> RunningCentral::Show(
    const std::string& folder, const std::string& control_address, bool waits) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string dialled, DialledAddress(control_address));
  RUNNEL_ASSIGN_OR_RETURN(const Address address, ParseAddress(dialled));
  RUNNEL_RETURN_IF_ERROR(MakePrivateFolder(folder));
  std::string path = absl::StrCat(folder, "/", kPrefix, address.port);
  // Of one that was killed, or a link that somebody planted.
  unlink(path.c_str());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return FileError("create", path);
  std::unique_ptr<RunningCentral> shown(new RunningCentral(path, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) return FileError("lock", path);
  const std::string text = absl::StrCat(dialled, "\n", control_address, "\n", waits ? kWaits : "");
  if (write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return FileError("write", path);
  return shown;
}

RunningCentral::~RunningCentral() {
  unlink(path_.c_str());
  close(fd_);
}

absl::StatusOr<std::string> FindRunningCentral(const std::string& folder) {
  std::vector<std::string> addresses;
  for (ShownCentral& central : AllShown(folder)) addresses.push_back(std::move(central.dialled));
  if (addresses.size() == 1) return addresses.front();
  if (addresses.empty()) {
    return absl::NotFoundError(
        "no central of this user runs on this host: --central HOST:PORT names one elsewhere");
  }
  std::sort(addresses.begin(), addresses.end());
  return absl::InvalidArgumentError(
      absl::StrCat("several centrals run here: say which with --central ",
                   absl::StrJoin(addresses, " or --central ")));
}

absl::StatusOr<ShownCentral> FindWaitingCentral(const std::string& folder) {
  std::vector<ShownCentral> waiting;
  for (ShownCentral& central : AllShown(folder)) {
    if (central.waits) waiting.push_back(std::move(central));
  }
  if (waiting.empty()) return absl::NotFoundError("no central waits for a run on this host");
  if (waiting.size() == 1) return waiting.front();
  std::vector<std::string> addresses;
  for (const ShownCentral& central : waiting) addresses.push_back(central.listens);
  std::sort(addresses.begin(), addresses.end());
  return absl::InvalidArgumentError(absl::StrCat(
      "several centrals wait for a run here: say whose workers are meant with --listen ",
      absl::StrJoin(addresses, " or --listen ")));
}

}  // namespace runnel
