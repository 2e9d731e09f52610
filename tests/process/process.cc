#include "tests/process/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace runnel {
namespace {

constexpr std::chrono::milliseconds kPoll(10);
// Sanitizers make the binaries several times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kDeadlineFactor = 8;
#else
constexpr int kDeadlineFactor = 1;
#endif

std::chrono::steady_clock::time_point DeadlineIn(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds * kDeadlineFactor);
}

}  // namespace

std::optional<pid_t> WorkerNamed(const Process& central, const std::string& name) {
  for (const pid_t pid : central.Children()) {
    const std::string words = ReadFile("/proc/" + std::to_string(pid) + "/cmdline");
    if (pid > 0 && words.find(name) != std::string::npos) return pid;
  }
  return std::nullopt;
}

bool KillWorker(const Process& central, const std::string& name) {
  const std::optional<pid_t> pid = WorkerNamed(central, name);
  EXPECT_TRUE(pid.has_value()) << "no worker " << name << " to kill";
  return pid.has_value() && kill(*pid, SIGKILL) == 0;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool WaitForText(const std::string& path, const std::string& text, int seconds) {
  const auto deadline = DeadlineIn(seconds);
  while (ReadFile(path).find(text) == std::string::npos) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

Process::Process(const std::vector<std::string>& command, std::function<void()> in_child) {
  std::vector<std::string> words = command;
  if (words[0].rfind("runnel-", 0) == 0) words[0] = absl::StrCat(RUNNEL_BINARY_DIR, "/", words[0]);
  const std::string out = dir_ / "out";
  const std::string err = dir_ / "err";
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
  dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
  if (in_child) in_child();
  execv(argv[0], argv.data());
  _exit(127);
}

Process::~Process() {
  if (!Reap()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

bool Process::Reap() {
  if (ended_) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return true;
}

void Process::Signal(int signal) {
  if (!Reap()) kill(pid_, signal);
}

int Process::Wait(int seconds) {
  const auto deadline = DeadlineIn(seconds);
  while (!Reap()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "still running after " << seconds * kDeadlineFactor << " s:\n"
                    << out() << err();
      Signal(SIGKILL);
      waitpid(pid_, nullptr, 0);
      ended_ = true;
      exit_code_ = -SIGKILL;
      break;
    }
    std::this_thread::sleep_for(kPoll);
  }
  return exit_code_;
}

bool Process::WaitForOutput(const std::string& text, int seconds) {
  const auto deadline = DeadlineIn(seconds);
  while (true) {
    const bool ended = Reap();
    if ((out() + err()).find(text) != std::string::npos) return true;
    if (ended || std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
}

std::string Process::out() const { return ReadFile(dir_ / "out"); }
std::string Process::err() const { return ReadFile(dir_ / "err"); }

std::vector<pid_t> Process::Children() const {
  const std::string task =
      "/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children";
  std::istringstream text(ReadFile(task));
  std::vector<pid_t> children;
  for (pid_t child = 0; text >> child;) children.push_back(child);
  return children;
}

}  // namespace runnel
