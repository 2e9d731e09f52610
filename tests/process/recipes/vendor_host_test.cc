// A vendor host ends with its worker, however that ends, and whatever the driver is at.

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tests/process/process.h"

namespace runnel::vendor_host_test {
namespace {

// While it lives, processes whose parents have ended become this process's children.
class Heir {
 public:
  Heir() { EXPECT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); }
  ~Heir() { prctl(PR_SET_CHILD_SUBREAPER, 0); }
};

// The process that was started with this word beside its program.
std::optional<pid_t> ProcessWith(const std::string& program, const std::string& word) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string words = ReadFile(entry.path() / "cmdline");
    if (words.rfind(program, 0) == 0 && words.find(word) != std::string::npos)
      return std::stoi(entry.path().filename());
  }
  return std::nullopt;
}

// What became of a child; none if it still runs after a minute.
std::optional<int> StatusOf(pid_t pid) {
  constexpr int kMinuteMs = 60'000;
  pollfd end = {
      .fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), .events = POLLIN, .revents = 0};
  poll(&end, 1, kMinuteMs);
  close(end.fd);
  int status = 0;
  if (waitpid(pid, &status, WNOHANG) == pid) return status;
  return std::nullopt;
}

class VendorHostOfAWorker : public testing::TestWithParam<bool> {};

TEST_P(VendorHostOfAWorker, EndsWithItInACallThatDoesNotReturn) {
  const std::string host = RUNNEL_BINARY_DIR "/runnel-vendor-host";
  // A path of its own, by which the host is found.
  ScratchDir dir;
  const std::string library = dir / "libhangs.so";
  std::filesystem::copy_file(RUNNEL_HANGING_OPENCL, library);
  const Heir heir;
  Process worker({"runnel-worker", "--check", "--backend-option", "opencl.host=" + host,
                  "--backend-option", "opencl.library=" + library});
  ASSERT_TRUE(worker.WaitForOutput("clGetPlatformIDs hangs")) << worker.out() << worker.err();
  const std::optional<pid_t> pid = ProcessWith(host, library);
  ASSERT_TRUE(pid.has_value());
  if (GetParam()) worker.Signal(SIGSTOP);
  worker.Signal(SIGKILL);
  EXPECT_EQ(worker.Wait(), -SIGKILL);
  const std::optional<int> status = StatusOf(*pid);
  if (!status.has_value()) kill(*pid, SIGKILL);
  ASSERT_TRUE(status.has_value()) << "it has outlived its worker";
  EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL) << *status;
}

INSTANTIATE_TEST_SUITE_P(RunningAndStopped, VendorHostOfAWorker, testing::Bool());

}  // namespace
}  // namespace runnel::vendor_host_test
