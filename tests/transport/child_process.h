#pragma once

// This test binary once more, as a process that may be killed or stopped.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace runnel {

// The child runs the one (disabled) test of `filter` with `argument` in its environment and ends
// with its parent at the latest.
class ChildProcess {
 public:
  ChildProcess(const std::string& filter, const std::string& argument) {
    int ends[2];
    if (pipe(ends) != 0) return;
    setenv(kArgument, argument.c_str(), 1);
    const std::string flag = "--gtest_filter=" + filter;
    char name[] = "child", also[] = "--gtest_also_run_disabled_tests";
    char* arguments[] = {name, const_cast<char*>(flag.c_str()), also, nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], kReportFd);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    unsetenv(kArgument);
    close(ends[1]);
    read_end_ = ends[0];
  }
  ~ChildProcess() {
    Signal(SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    if (read_end_ >= 0) close(read_end_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Signal(int number) const {
    if (pid_ > 0) kill(pid_, number);
  }
  // The line that the child reports; what there is of it if the child ends before.
  std::string ReadLine() const {
    std::string line;
    for (char c; read(read_end_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

  // ---- in the child

  static std::string Argument() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char* argument = getenv(kArgument);
    return argument == nullptr ? "" : argument;
  }
  static void Report(std::string line) {
    line += '\n';
    if (write(kReportFd, line.data(), line.size()) < 0) _exit(1);
  }

 private:
  static constexpr char kArgument[] = "RUNNEL_TEST_CHILD";
  static constexpr int kReportFd = 100;
  pid_t pid_ = -1;
  int read_end_ = -1;
};

}  // namespace runnel
