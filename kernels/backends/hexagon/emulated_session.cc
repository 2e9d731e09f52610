#include "kernels/backends/hexagon/emulated_session.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/hexagon/memory_budget.h"
#include "kernels/backends/lost_backend.h"
#include "proto/base/status_macros.h"

extern char** environ;

namespace runnel::hexagon {
namespace {

// The file of the shared memory in the program.
constexpr int kSharedFile = 3;

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) return absl::StrCat("was ended by signal ", WTERMSIG(status));
  return absl::StrCat("ended with exit code ", WEXITSTATUS(status));
}

class EmulatedSession final : public DspSession {
 public:
  EmulatedSession(EmulatedSessionOptions options, std::shared_ptr<SharedMemory> memory)
      : options_(std::move(options)),
        packed_bytes_(options_.packed_bytes > 0 ? options_.packed_bytes
                                                : options_.private_bytes / 2),
        memory_(std::move(memory)) {}
  ~EmulatedSession() override { End(); }

  absl::Status Open() {
    RUNNEL_RETURN_IF_ERROR(Start());
    RUNNEL_RETURN_IF_ERROR(Send({.verb = DspVerb::kOpen,
                                 .shared_bytes = options_.shared_bytes,
                                 .vtcm_bytes = options_.vtcm_bytes,
                                 .private_bytes = options_.private_bytes,
                                 .packed_bytes = packed_bytes_,
                                 .threads = options_.threads}));
    RUNNEL_ASSIGN_OR_RETURN(const DspReply reply, Receive());
    if (reply.status == DspStatus::kOk) return absl::OkStatus();
    return Lose(absl::StrCat("refused to open a session (status ",
                             static_cast<uint32_t>(reply.status), ")"));
  }

  // Profiles of classes that end so are refused (predictor/profiles/profile_file.h).
  const char* name() const override { return "v67-emulated"; }
  bool is_emulated() const override { return true; }
  std::string description() const override {
    if (options_.why_emulated.empty()) return name();
    return absl::StrCat(name(), " (no device: ", options_.why_emulated, ")");
  }
  const std::shared_ptr<SharedMemory>& memory() const override { return memory_; }
  bool lost() const override { return !lost_.ok(); }
  absl::Span<const DspCounts> counts() const override { return counts_; }

  uint32_t packed_bytes() const override {
    if (!options_.packed_gets_rest) return packed_bytes_;
    return PackedBytesLeft({.shared = options_.shared_bytes, .packed = packed_bytes_},
                           memory_->taken_bytes());
  }
  void KeepPlaces(uint32_t kept_bytes) override { kept_bytes_ = kept_bytes; }

  ListTraffic traffic() const override { return sender_.traffic(); }

  absl::Status Submit(absl::Span<const DspOp> ops, uint64_t list) override {
    RUNNEL_RETURN_IF_ERROR(lost_);
    if (ops.empty() || ops.size() > kMaxOps) {
      return absl::InvalidArgumentError(absl::StrCat(ops.size(), " operations in a list"));
    }
    DspRequest request = {.verb = DspVerb::kRun,
                          .packed_bytes = packed_bytes(),
                          .kept_bytes = std::min(kept_bytes_, packed_bytes())};
    sender_.Write(list, ops, desk(), &request);
    submitted_ = ops.size();
    return Send(request);
  }

  absl::Status Wait() override {
    RUNNEL_RETURN_IF_ERROR(lost_);
    RUNNEL_ASSIGN_OR_RETURN(const DspReply reply, Receive());
    switch (reply.status) {
      case DspStatus::kOk:
        break;
      case DspStatus::kNoMemory:
        return MarkLostBackend(
            absl::ResourceExhaustedError(absl::StrCat(
                "backend hexagon: the DSP has no memory for operation ", reply.failed_op, " of ",
                submitted_, ": ", options_.private_bytes - packed_bytes_,
                " bytes are for one operation (--device-memory-mb)")),
            "hexagon");
      default:
        return Lose(absl::StrCat("refused operation ", reply.failed_op, " of ", submitted_,
                                 " (status ", static_cast<uint32_t>(reply.status), ")"));
    }
    counts_.assign(desk().counts, desk().counts + submitted_);
    return absl::OkStatus();
  }

 private:
  DspDesk& desk() const { return *reinterpret_cast<DspDesk*>(memory_->base()); }

  // Messages keep their lengths, so that a wrong one shows at once.
  absl::Status Start() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      return Lose(absl::StrCat("has no socket: ", strerror(errno)));
    }
    socket_ = ends[0];
    std::vector<char*> words;
    for (const std::string& word : options_.command)
      words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, memory_->file(), kSharedFile);
    // A group of its own: Ctrl-C is for this process, which still needs the program to end well.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawn(&pid_, words[0], &actions, &attributes, words.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (error == 0) return absl::OkStatus();
    pid_ = -1;
    return Lose(absl::StrCat("does not start (", options_.command[0], "): ", strerror(error)));
  }

  absl::Status Send(DspRequest request) {
    request.sequence = ++sequence_;
    *const_cast<volatile uint32_t*>(&desk().ops_done) = 0;
    ssize_t sent;
    do {
      sent = send(socket_, &request, sizeof(request), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent == sizeof(request)) return absl::OkStatus();
    return LoseEnded();
  }

  absl::StatusOr<DspReply> Receive() {
    RUNNEL_RETURN_IF_ERROR(AwaitMessage());
    // One byte more than a reply, so that a longer one shows.
    std::byte message[sizeof(DspReply) + 1];
    ssize_t got;
    do {
      got = recv(socket_, message, sizeof(message), 0);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) return LoseEnded();
    if (got != sizeof(DspReply)) {
      return Lose(absl::StrCat("answered with a message of a wrong length, which is not ",
                               sizeof(DspReply), " bytes"));
    }
    DspReply reply;
    std::memcpy(&reply, message, sizeof(reply));
    if (reply.magic != kDspMagic || reply.sequence != sequence_) return Lose("answered nonsense");
    return reply;
  }

  // Waits until there is a message, the program ended, or nothing was done for too long.
  absl::Status AwaitMessage() {
    using Clock = std::chrono::steady_clock;
    const auto patience = std::chrono::seconds(options_.stall_seconds);
    uint32_t done = 0;
    auto deadline = Clock::now() + patience;
    for (;;) {
      pollfd waited = {socket_, POLLIN, 0};
      const int ready = poll(&waited, 1, 500);
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return Lose(absl::StrCat("poll: ", strerror(errno)));
      const uint32_t now_done = *const_cast<const volatile uint32_t*>(&desk().ops_done);
      if (now_done != done) {
        done = now_done;
        deadline = Clock::now() + patience;
      } else if (Clock::now() > deadline) {
        return Lose(absl::StrCat("hangs: nothing done for ", options_.stall_seconds, " s"));
      }
    }
  }

  absl::Status LoseEnded() {
    // Its end of the socket closes a moment before the system tells how it ended; one that closed
    // it and lives on is not waited for.
    constexpr int kPolls = 100, kPollMs = 10;
    for (int i = 0; i < kPolls && pid_ > 0; ++i) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return Lose(HowItEnded(status));
      }
      poll(nullptr, 0, kPollMs);
    }
    return Lose("closed its end");
  }

  absl::Status Lose(const std::string& why) {
    End();
    lost_ = MarkLostBackend(
        absl::UnavailableError(absl::StrCat("backend hexagon: the DSP program ", why)), "hexagon");
    return lost_;
  }

  void End() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

  const EmulatedSessionOptions options_;
  const uint32_t packed_bytes_;  // at most
  uint32_t kept_bytes_ = 0;
  const std::shared_ptr<SharedMemory> memory_;
  int socket_ = -1;
  pid_t pid_ = -1;
  uint32_t sequence_ = 0;
  ListSender sender_;
  size_t submitted_ = 0;
  std::vector<DspCounts> counts_;
  absl::Status lost_;
};

std::string FindInPath(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string file = absl::StrCat(folder, "/", name);
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> FindEmulator() {
  std::error_code ignored;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::string program = (binary.parent_path() / "runnel-dsp").string();
  if (access(program.c_str(), R_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(program, " is not there"));
  }
  for (const char* name : {"qemu-hexagon", "qemu-hexagon-static"}) {
    if (const std::string emulator = FindInPath(name); !emulator.empty()) {
      return std::vector<std::string>{emulator, program};
    }
  }
  return absl::NotFoundError("qemu-hexagon is not in PATH (package qemu-user)");
}

absl::StatusOr<std::unique_ptr<DspSession>> OpenEmulatedSession(EmulatedSessionOptions options) {
  RUNNEL_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory,
                          SharedMemory::Create(options.shared_bytes, kDeskBytes));
  auto session = std::make_unique<EmulatedSession>(std::move(options), std::move(memory));
  RUNNEL_RETURN_IF_ERROR(session->Open());
  return session;
}

}  // namespace runnel::hexagon
