#include "central/run/workers/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/scratch.h"

namespace runnel::worker_process_test {
namespace {

using ::testing::HasSubstr;

// Generous: nothing waits that long unless it fails.
constexpr int64_t kDeadlineMs = 30'000;

WorkerCommand Shell(const std::string& script) {
  WorkerCommand command;
  command.binary = "/bin/sh";
  command.arguments = {"-c", script};
  return command;
}

std::unique_ptr<WorkerProcess> MustStart(const WorkerCommand& command) {
  auto process = WorkerProcess::Start(command);
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? *std::move(process) : nullptr;
}

// A fifo that the child holds open tells when it has come to a place and when it is gone.
class Fifo {
 public:
  explicit Fifo(const std::string& path) : path_(path) { EXPECT_EQ(mkfifo(path.c_str(), 0600), 0); }
  ~Fifo() { close(fd_); }
  // Until the child opens it for writing.
  void Open() { fd_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC); }
  // Until `count` bytes have come or the last writer is gone; a failure if neither happens.
  std::string Read(size_t count) {
    std::string got;
    char c = 0;
    while (got.size() < count && Waited() && read(fd_, &c, 1) == 1) got.push_back(c);
    return got;
  }

 private:
  bool Waited() const {
    pollfd waited = {fd_, POLLIN, 0};
    const bool came = poll(&waited, 1, static_cast<int>(kDeadlineMs)) == 1;
    EXPECT_TRUE(came) << "the process neither wrote nor ended";
    return came;
  }

  std::string path_;
  int fd_ = -1;
};

TEST(WorkerProcess, ReportsHowItEnded) {
  const auto good = MustStart(Shell("exit 0"));
  ASSERT_TRUE(good->Wait(kDeadlineMs).has_value());
  EXPECT_TRUE(good->Poll()->ok());
  const auto bad = MustStart(Shell("exit 3"));
  ASSERT_TRUE(bad->Wait(kDeadlineMs).has_value());
  EXPECT_EQ(*bad->Poll(), (ProcessExit{false, 3}));
  EXPECT_EQ(bad->Poll()->ToString(), "exit code 3");
  EXPECT_EQ(bad->Terminate(kDeadlineMs), (ProcessExit{false, 3}));
  const auto killed = MustStart(Shell("kill -9 $$"));
  ASSERT_TRUE(killed->Wait(kDeadlineMs).has_value());
  EXPECT_EQ(*killed->Poll(), (ProcessExit{true, SIGKILL}));
  EXPECT_EQ(killed->Poll()->ToString(), "signal 9 (Killed)");
  EXPECT_FALSE(killed->Poll()->ok());
}

TEST(WorkerProcess, PollDoesNotWait) {
  const auto process = MustStart(Shell("exec sleep 1000"));
  EXPECT_FALSE(process->Poll().has_value());
  EXPECT_FALSE(process->Wait(1).has_value());
  EXPECT_EQ(process->Terminate(kDeadlineMs), (ProcessExit{true, SIGTERM}));
}

TEST(WorkerProcess, TerminateAsksFirst) {
  ScratchDir dir;
  Fifo fifo(dir / "fifo");
  const auto process = MustStart(
      Shell("trap 'exit 5' TERM; exec 3>" + (dir / "fifo") + "; echo r >&3; while :; do :; done"));
  fifo.Open();
  ASSERT_EQ(fifo.Read(1), "r");
  EXPECT_EQ(process->Terminate(kDeadlineMs), (ProcessExit{false, 5}));
}

TEST(WorkerProcess, TerminateKillsWhoDoesNotListen) {
  ScratchDir dir;
  Fifo fifo(dir / "fifo");
  const auto process = MustStart(
      Shell("trap '' TERM; exec 3>" + (dir / "fifo") + "; echo r >&3; while :; do :; done"));
  fifo.Open();
  ASSERT_EQ(fifo.Read(1), "r");
  EXPECT_EQ(process->Terminate(50), (ProcessExit{true, SIGKILL}));
}

TEST(WorkerProcess, DestructorLeavesNothing) {
  auto process = MustStart(Shell("exec sleep 1000"));
  const pid_t pid = process->pid();
  EXPECT_EQ(kill(pid, 0), 0);
  process.reset();
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(WorkerProcess, EnvironmentArgumentsAndInput) {
  ScratchDir dir;
  setenv("OMP_NUM_THREADS", "16", 1);
  WorkerCommand command = Shell(
      "printf '%s|%s|%s|%s|%s|%s' \"$OMP_NUM_THREADS\" \"$OPENBLAS_NUM_THREADS\" "
      "\"$RUNNEL_LOG_LEVEL\" \"$EXTRA\" \"$1\" \"$(cat)\" > \"$0\"");
  command.arguments.push_back(dir / "out");
  command.arguments.push_back("a b'\"");
  command.threads = 2;
  command.log_level = "debug";
  command.environment = {{"EXTRA", "x=y"}};
  const auto process = MustStart(command);
  ASSERT_EQ(process->Wait(kDeadlineMs), (ProcessExit{false, 0}));
  EXPECT_EQ(Slurp(dir / "out"), "2|2|debug|x=y|a b'\"|");
  unsetenv("OMP_NUM_THREADS");
}

TEST(WorkerProcess, HasAGroupOfItsOwnAndCleanSignals) {
  ScratchDir dir;
  sigset_t blocked, before;
  sigfillset(&blocked);
  sigprocmask(SIG_SETMASK, &blocked, &before);
  signal(SIGPIPE, SIG_IGN);
  const int leaked = open("/dev/null", O_RDONLY);  // not close-on-exec
  ASSERT_EQ(fcntl(leaked, F_DUPFD, 77), 77);
  // The shell itself blocks signals while it waits for a child: look at what it becomes.
  const auto process =
      MustStart(Shell("ls /proc/$$/fd | grep -c '^77$' > " + (dir / "out") +
                      "; exec grep -E 'Sig(Blk|Ign)' /proc/self/status >> " + (dir / "out")));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  signal(SIGPIPE, SIG_DFL);
  close(77);
  close(leaked);
  EXPECT_EQ(getpgid(process->pid()), process->pid());
  ASSERT_TRUE(process->Wait(kDeadlineMs).has_value());
  EXPECT_EQ(Slurp(dir / "out"), "0\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

TEST(WorkerProcess, DiesWithItsParent) {
  ScratchDir dir;
  Fifo fifo(dir / "fifo");
  Fifo held(dir / "fifo2");
  const pid_t parent = fork();
  if (parent == 0) {
    // Never destroyed: as if this process had been killed.
    auto process = WorkerProcess::Start(
        Shell("echo r > " + (dir / "fifo") + "; exec 3>" + (dir / "fifo2") + "; exec sleep 100"));
    (void)process->release();
    pause();
    _exit(0);
  }
  fifo.Open();
  ASSERT_EQ(fifo.Read(1), "r");
  held.Open();
  kill(parent, SIGKILL);
  // The end of the file: the worker is gone, and with it the last writer.
  EXPECT_EQ(held.Read(1), "");
  EXPECT_EQ(waitpid(parent, nullptr, 0), parent);
}

TEST(WorkerProcess, BinariesThatCannotRun) {
  ScratchDir dir;
  Spill(dir / "text", "not a program");
  WorkerCommand command;
  command.binary = dir / "none";
  absl::Status status = WorkerProcess::Start(command).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(dir / "none"));
  command.binary = dir / "text";
  status = WorkerProcess::Start(command).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
}

TEST(FindWorkerBinary, EnvironmentThenBeside) {
  ScratchDir dir;
  Spill(dir / "mine", "");
  chmod((dir / "mine").c_str(), 0700);
  EXPECT_EQ(*FindWorkerBinaryIn(dir.path(), dir / "mine"), dir / "mine");
  const absl::Status missing = FindWorkerBinaryIn(dir.path(), "").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(dir / "runnel-worker"));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("RUNNEL_WORKER"));
  Spill(dir / "runnel-worker", "");
  chmod((dir / "runnel-worker").c_str(), 0700);
  EXPECT_EQ(*FindWorkerBinaryIn(dir.path(), ""), dir / "runnel-worker");
  const absl::Status wrong = FindWorkerBinaryIn(dir.path(), dir / "gone").status();
  EXPECT_EQ(wrong.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("RUNNEL_WORKER=" + (dir / "gone")));
  setenv("RUNNEL_WORKER", (dir / "mine").c_str(), 1);
  EXPECT_EQ(*FindWorkerBinary(), dir / "mine");
  unsetenv("RUNNEL_WORKER");
}

}  // namespace
}  // namespace runnel::worker_process_test
