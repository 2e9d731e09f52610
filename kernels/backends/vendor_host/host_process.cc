#include "kernels/backends/vendor_host/host_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/base/status_macros.h"

extern char** environ;

namespace runnel {
namespace {

// A driver may compile and probe when it is loaded.
constexpr int kMostLoadingMs = 120000;
constexpr uint64_t kAlignment = 64;

std::string HowTheHostEnded(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was ended by signal ", WTERMSIG(status));
  switch (WEXITSTATUS(status)) {
    case kHostEndedWell:
      return "ended";
    case kHostHasBadArguments:
      return "does not take its arguments: it is of another release";
    case kHostGotNonsense:
      return "got a request that it does not understand";
    case kHostHasNoMemory:
      return "has no memory";
    default:
      return absl::StrCat("ended with exit code ", WEXITSTATUS(status));
  }
}

// Not below 10: the host's own numbers are free for it.
int HighCopy(int file) { return fcntl(file, F_DUPFD_CLOEXEC, 10); }

// Two sockets that are connected; -1: there is none.
struct Ends {
  int own = -1;
  int host = -1;
};
Ends MakeEnds() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  const Ends made = {ends[0], HighCopy(ends[1])};
  close(ends[1]);
  return made;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostProcess>> HostProcess::Start(const HostProcessOptions& options) {
  auto host = std::unique_ptr<HostProcess>(new HostProcess);
  host->library_ = options.library;
  RUNNEL_RETURN_IF_ERROR(host->MakeArea());
  RUNNEL_RETURN_IF_ERROR(host->Spawn(options));
  RUNNEL_RETURN_IF_ERROR(host->AwaitLibrary(options));
  return host;
}

HostProcess::~HostProcess() {
  End(Answer::kWhole);
  ReleaseArea();
}

int64_t HostProcess::copied_bytes() const {
  const std::lock_guard lock(mutex_);
  return copied_bytes_;
}

absl::Status HostProcess::MakeArea() {
  const int file = memfd_create("runnel-vendor-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  area_file_ = HighCopy(file);
  if (file >= 0) close(file);
  // Neither side can take the memory away under the other.
  if (area_file_ < 0 || ftruncate(area_file_, kHostAreaBytes) != 0 ||
      fcntl(area_file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return absl::UnavailableError(
        absl::StrCat("no memory to share with the vendor host: ", strerror(errno)));
  }
  void* at = mmap(nullptr, kHostAreaBytes, PROT_READ | PROT_WRITE, MAP_SHARED, area_file_, 0);
  if (at == MAP_FAILED) {
    return absl::UnavailableError(
        absl::StrCat("no memory to share with the vendor host: ", strerror(errno)));
  }
  area_ = static_cast<std::byte*>(at);
  return absl::OkStatus();
}

void HostProcess::ReleaseArea() {
  if (area_ != nullptr) munmap(area_, kHostAreaBytes);
  if (area_file_ >= 0) close(area_file_);
  area_ = nullptr;
  area_file_ = -1;
}

absl::Status HostProcess::Spawn(const HostProcessOptions& options) {
  const Ends calls = MakeEnds(), life = MakeEnds();
  socket_ = calls.own;
  life_ = life.own;
  if (calls.host < 0 || life.host < 0) {
    const std::string why = strerror(errno);
    for (const int file : {calls.host, life.host}) {
      if (file >= 0) close(file);
    }
    return absl::UnavailableError(absl::StrCat("no sockets for the vendor host: ", why));
  }
  std::vector<std::string> texts = {options.program, options.library};
  texts.insert(texts.end(), options.candidates.begin(), options.candidates.end());
  std::vector<char*> words;
  for (std::string& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // What a driver prints is no output of the worker.
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, calls.host, kHostSocket);
  posix_spawn_file_actions_adddup2(&actions, area_file_, kHostArea);
  posix_spawn_file_actions_adddup2(&actions, life.host, kHostLife);
  // A group of its own: Ctrl-C is for this process, which still needs the host to end well.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&pid_, words[0], &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(calls.host);
  close(life.host);
  if (error == 0) return absl::OkStatus();
  pid_ = -1;
  return absl::UnavailableError(
      absl::StrCat("the vendor host ", options.program, " cannot be started: ", strerror(error)));
}

absl::Status HostProcess::AwaitLibrary(const HostProcessOptions& options) {
  HostReply reply;
  const Answer answer = Receive(&reply, 0, kMostLoadingMs);
  if (answer != Answer::kWhole) {
    return absl::UnavailableError(
        absl::StrCat("the vendor host ", options.program, " ", End(answer)));
  }
  if (reply.result >= 0 && reply.result < static_cast<int64_t>(options.candidates.size())) {
    loaded_ = options.candidates[static_cast<size_t>(reply.result)];
    return absl::OkStatus();
  }
  const auto* text = reinterpret_cast<const char*>(area_);
  const absl::string_view said(text, strnlen(text, kHostAreaBytes));
  End(Answer::kWhole);
  return absl::UnavailableError(
      absl::StrCat("the vendor host ", options.program, " can load none of the libraries: ",
                   absl::StrJoin(absl::StrSplit(said, '\n', absl::SkipEmpty()), "; ")));
}

HostProcess::Answer HostProcess::Receive(HostReply* reply, uint32_t sequence, int timeout_ms) {
  pollfd waited = {socket_, POLLIN, 0};
  int ready = 0;
  while ((ready = poll(&waited, 1, timeout_ms)) < 0 && errno == EINTR) {
  }
  if (ready <= 0) return Answer::kNone;
  const ssize_t got = recv(socket_, reply, sizeof *reply, MSG_TRUNC);
  if (got <= 0) return Answer::kEnd;
  const bool is_whole = got == static_cast<ssize_t>(sizeof *reply) && reply->magic == kHostMagic &&
                        reply->sequence == sequence;
  return is_whole ? Answer::kWhole : Answer::kNonsense;
}

bool HostProcess::Exchange(HostRequest* request, HostReply* reply) {
  if (is_lost_) return false;
  request->magic = kHostMagic;
  request->sequence = ++sequence_;
  // A driver that hangs hangs the worker until DriverWatch ends it, as it does without a host.
  const bool is_sent = send(socket_, request, sizeof *request, MSG_NOSIGNAL) ==
                       static_cast<ssize_t>(sizeof *request);
  const Answer answer = is_sent ? Receive(reply, sequence_, -1) : Answer::kEnd;
  if (answer == Answer::kWhole) return true;
  is_lost_ = true;
  std::fprintf(stderr, "%s: the vendor host %s\n", library_.c_str(), End(answer).c_str());
  // Whoever used it may keep the object for as long as it runs.
  ReleaseArea();
  return false;
}

std::string HostProcess::End(Answer last) {
  // Behind its end, which is then its own.
  const absl::Cleanup close_life = [this] {
    if (life_ >= 0) close(std::exchange(life_, -1));
  };
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  if (pid_ < 0) return "is not there";
  // One whose end of the socket is closed, or that sees ours closed, is about to end.
  constexpr int kMostWaits = 2000, kWaitUs = 1000;
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < kMostWaits && last != Answer::kNonsense && last != Answer::kNone; ++i) {
    ended = waitpid(pid_, &status, WNOHANG);
    if (ended != 0) break;
    usleep(kWaitUs);
  }
  if (ended == 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
  if (last == Answer::kNonsense) return "answers with nonsense";
  return last == Answer::kNone ? "does not answer" : HowTheHostEnded(status);
}

HostCall::HostCall(HostProcess& host, uint32_t function) : host_(host), lock_(host.mutex_) {
  request_.function = function;
}

uint64_t HostCall::Take(size_t bytes) {
  const uint64_t offset = used_;
  if (bytes > kHostAreaBytes || offset > kHostAreaBytes - bytes) {
    fits_ = false;
    return 0;
  }
  used_ = (offset + bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

HostCall& HostCall::Number(uint64_t value) {
  request_.argument[request_.arguments++] = {value, 0};
  return *this;
}

HostCall& HostCall::In(const void* data, size_t bytes) {
  if (data == nullptr) {
    request_.argument[request_.arguments++] = {HOST_NO_PIECE, 0};
    return *this;
  }
  const uint64_t offset = Take(bytes);
  request_.argument[request_.arguments++] = {offset, bytes};
  if (!fits_ || bytes == 0 || host_.is_lost_) return *this;
  std::memcpy(host_.area_ + offset, data, bytes);
  host_.copied_bytes_ += static_cast<int64_t>(bytes);
  return *this;
}

HostCall& HostCall::Out(void* data, size_t bytes) {
  if (data == nullptr) return In(nullptr, 0);
  const uint64_t offset = Take(bytes);
  request_.argument[request_.arguments++] = {offset, bytes};
  rooms_.push_back({data, bytes, offset});
  // What a function leaves as it was stays so. It writes the whole of a large one.
  constexpr size_t kSmallBytes = 64 << 10;
  if (fits_ && bytes > 0 && bytes <= kSmallBytes && !host_.is_lost_)
    std::memcpy(host_.area_ + offset, data, bytes);
  return *this;
}

HostCall::Result HostCall::Send() {
  if (!fits_) return Result::kTooLarge;
  if (!host_.Exchange(&request_, &reply_)) return Result::kLost;
  if (reply_.refused != 0) return Result::kRefused;
  if (reply_.result != 0) return Result::kDone;
  for (const Room& room : rooms_) {
    if (room.bytes > 0) std::memcpy(room.data, host_.area_ + room.offset, room.bytes);
    host_.copied_bytes_ += static_cast<int64_t>(room.bytes);
  }
  return Result::kDone;
}

}  // namespace runnel
