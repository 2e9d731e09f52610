#pragma once

// Real binaries as real processes: started, watched with a deadline, killed.

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/scratch.h"

namespace runnel {

class Process {
 public:
  // "runnel-central" and "runnel-worker" are those of this build. Output goes to files.
  explicit Process(const std::vector<std::string>& command,
                   std::function<void()> in_child = nullptr);
  // Kills what still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // Waits for the end; fails the test and kills the process after the deadline. The exit code, or
  // minus the signal.
  int Wait(int seconds = 300);
  // Polls until standard output or error contains `text`; false if the process ended before or the
  // deadline passed.
  bool WaitForOutput(const std::string& text, int seconds = 60);
  std::string out() const;
  std::string err() const;
  // Process ids of its children now.
  std::vector<pid_t> Children() const;

 private:
  bool Reap();

  ScratchDir dir_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int exit_code_ = 0;
};

// The child of `central` whose command line has `name`; none if there is none.
std::optional<pid_t> WorkerNamed(const Process& central, const std::string& name);
// Kills it. False, and the test fails, if there is none.
bool KillWorker(const Process& central, const std::string& name);

std::string ReadFile(const std::string& path);
// Polls until the file contains `text`; false after the deadline.
bool WaitForText(const std::string& path, const std::string& text, int seconds = 60);

}  // namespace runnel
