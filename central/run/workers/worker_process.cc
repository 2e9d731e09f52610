#include "central/run/workers/worker_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Polling interval where the kernel has no pidfd.
constexpr int kPollMs = 5;

// Data of the child, made before the fork: between fork and exec only async-signal-safe calls are
// allowed, since another thread may have held any lock.
struct ExecPlan {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;
};

void SetVariable(std::vector<std::string>& environment, const std::string& name,
                 const std::string& value) {
  const std::string prefix = name + "=";
  environment.erase(std::remove_if(environment.begin(), environment.end(),
                                   [&prefix](const std::string& entry) {
                                     return entry.compare(0, prefix.size(), prefix) == 0;
                                   }),
                    environment.end());
  environment.push_back(prefix + value);
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

ExecPlan MakePlan(const WorkerCommand& command) {
  ExecPlan plan;
  plan.arguments = command.arguments;
  plan.arguments.insert(plan.arguments.begin(), command.binary);
  for (char** entry = environ; *entry != nullptr; ++entry) plan.environment.emplace_back(*entry);
  SetVariable(plan.environment, "OMP_NUM_THREADS", absl::StrCat(command.threads));
  SetVariable(plan.environment, "OPENBLAS_NUM_THREADS", absl::StrCat(command.threads));
  if (!command.log_level.empty()) {
    SetVariable(plan.environment, "RUNNEL_LOG_LEVEL", command.log_level);
  }
  for (const auto& [name, value] : command.environment) {
    SetVariable(plan.environment, name, value);
  }
  plan.argv = Pointers(plan.arguments);
  plan.envp = Pointers(plan.environment);
  return plan;
}

void ResetSignals() {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Runs in the child. Reports errno of a failure through `report` and ends.
[[noreturn]] void Exec(const ExecPlan& plan, const char* binary, pid_t parent, int report) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == parent) {  // else the parent ended before the line above
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    // Best effort: ours are all close-on-exec, a library's may not be.
    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    ResetSignals();
    execve(binary, plan.argv.data(), plan.envp.data());
  }
  const int error_number = errno;
  (void)!write(report, &error_number, sizeof(error_number));
  _exit(127);
}

// 0 if exec went well: the pipe was closed by it.
int ReadReport(int fd) {
  int error_number = 0;
  ssize_t got = 0;
  do {
    got = read(fd, &error_number, sizeof(error_number));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof(error_number)) ? error_number : 0;
}

// -1 where the kernel has none. By its number: glibc 2.36 declares the function without C linkage.
int OpenPidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

ProcessExit FromWaitStatus(int status) {
  if (WIFSIGNALED(status)) return {true, WTERMSIG(status)};
  return {false, WEXITSTATUS(status)};
}

}  // namespace

std::string ProcessExit::ToString() const {
  if (!signaled) return absl::StrCat("exit code ", code);
  return absl::StrCat("signal ", code, " (", strsignal(code), ")");
}

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(const WorkerCommand& command) {
  const ExecPlan plan = MakePlan(command);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return FileError("start", command.binary, errno);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Exec(plan, command.binary.c_str(), parent, report[1]);
  const int fork_error = errno;
  close(report[1]);
  if (pid < 0) {
    close(report[0]);
    return absl::ResourceExhaustedError(
        absl::StrCat("start ", command.binary, ": ", strerror(fork_error)));
  }
  const int exec_error = ReadReport(report[0]);
  close(report[0]);
  std::unique_ptr<WorkerProcess> process(new WorkerProcess(pid, OpenPidfd(pid)));
  if (exec_error != 0) return FileError("start", command.binary, exec_error);
  return process;
}

WorkerProcess::~WorkerProcess() {
  Terminate(/*grace_ms=*/0);
  if (pidfd_ >= 0) close(pidfd_);
}

std::optional<ProcessExit> WorkerProcess::Poll() {
  if (exit_.has_value()) return exit_;
  int status = 0;
  const pid_t got = waitpid(pid_, &status, WNOHANG);
  if (got == pid_) exit_ = FromWaitStatus(status);
  // Somebody ignores SIGCHLD: it is gone, how is lost.
  if (got < 0 && errno == ECHILD) exit_ = ProcessExit{false, 255};
  return exit_;
}

std::optional<ProcessExit> WorkerProcess::Wait(int64_t timeout_ms) {
  const auto deadline = SteadyClock::now() + std::chrono::milliseconds(timeout_ms);
  while (!Poll().has_value()) {
    const int64_t left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
    if (left <= 0) break;
    pollfd waited = {pidfd_, POLLIN, 0};
    poll(&waited, pidfd_ >= 0 ? 1 : 0,
         static_cast<int>(pidfd_ >= 0 ? std::min<int64_t>(left, 1000) : kPollMs));
  }
  return exit_;
}

// The number is ours until the process is reaped, which only Poll does.
void WorkerProcess::Signal(int signal) {
  if (!Poll().has_value()) kill(pid_, signal);
}

ProcessExit WorkerProcess::Terminate(int64_t grace_ms) {
  if (grace_ms > 0) {
    Signal(SIGTERM);
    Wait(grace_ms);
  }
  Signal(SIGKILL);
  while (!Wait(1000).has_value()) {  // SIGKILL cannot be refused; a stuck disk can delay it
  }
  return *exit_;
}

absl::StatusOr<std::string> FindWorkerBinaryIn(const std::string& directory,
                                               const std::string& from_environment) {
  if (!from_environment.empty()) {
    if (access(from_environment.c_str(), X_OK) == 0) return from_environment;
    return absl::NotFoundError(absl::StrCat("RUNNEL_WORKER=", from_environment, ": ",
                                            strerror(errno), "; it must name the runnel-worker"));
  }
  const std::string path = directory + "/runnel-worker";
  if (access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(absl::StrCat("no runnel-worker at ", path, " (", strerror(errno),
                                          "): install it there or set RUNNEL_WORKER to its path"));
}

absl::StatusOr<std::string> FindWorkerBinary() {
  const char* from_environment = getenv("RUNNEL_WORKER");
  std::string self(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
  self.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  const size_t slash = self.rfind('/');
  return FindWorkerBinaryIn(slash == std::string::npos ? "." : self.substr(0, slash),
                            from_environment == nullptr ? "" : from_environment);
}

}  // namespace runnel
