// Devices with too little memory, with real processes: refused before anything is sent to them
// where their memory is known, named with the reason where it is not.

#include <sys/resource.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel::memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Of a micro-batch the middle of the model takes about 100 MB.
const Words kRun = {"--quick",
                    "--model",
                    "lenet",
                    "--dataset",
                    "synthetic_digits",
                    "--batch-size",
                    "4096",
                    "--max-batches",
                    "4",
                    "--eval-every",
                    "-1"};

TEST(Memory, AWorkerThatIsTooSmallIsRefusedWithTheNumbers) {
  for (const char* command : {"plan", "train"}) {
    Process central(With(With({"runnel-central", command}, kRun), {"--workers", "1"}));
    const std::string address = WorkersAddress(central);
    ScratchDir dir;
    Process worker({"runnel-worker", "--once", "--central", address, "--name", "small",
                    "--memory-mb", "70", "--state-dir", dir / "state"});
    EXPECT_EQ(central.Wait(), 2) << command << central.out();
    EXPECT_THAT(central.err(),
                AllOf(HasSubstr("worker small: layers "), HasSubstr(" MB, it may take 70 MB: "),
                      HasSubstr("--memory-mb")))
        << command;
    worker.Wait();
    EXPECT_THAT(worker.err(), ::testing::Not(HasSubstr("has failed"))) << "nothing was sent to it";
  }
}

// Until it takes part: it has all its threads then.
void AwaitMember(const std::string& address, const std::string& name) {
  std::string members;
  for (int i = 0; i < 100 && members.find(name) == std::string::npos; ++i) {
    Process devices({"runnel-central", "devices", "--central", address});
    devices.Wait(30);
    members = devices.out();
  }
  EXPECT_THAT(members, HasSubstr(name));
}

// All that a process has, and some MB more.
void LimitMemory(const Process& process, rlim_t more_bytes) {
  const std::string status = ReadFile(absl::StrCat("/proc/", process.pid(), "/status"));
  const size_t at = status.find("VmSize:");
  ASSERT_NE(at, std::string::npos);
  const rlim_t bytes = std::stoull(status.substr(at + 7)) * 1024 + more_bytes;
  const rlimit limit = {bytes, bytes};
  ASSERT_EQ(prlimit(process.pid(), RLIMIT_AS, &limit, nullptr), 0);
}

TEST(Memory, AWorkerThatRunsOutOfItSaysSoAndIsLeftOut) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own, and ends a process that has none left";
#endif
  Process central(With(With({"runnel-central", "train"}, kRun), {"--workers", "2"}));
  const std::string address = WorkersAddress(central);
  ScratchDir dir;
  const Words worker = {"runnel-worker", "--central", address, "--memory-mb", "1000000", "--once"};
  Process starved(With(worker, {"--name", "starved", "--state-dir", dir / "a"}));
  AwaitMember(address, "starved");
  // Too little for the threads of a stage: it ends while the stage is prepared, wherever the
  // tensors would lie.
  LimitMemory(starved, 4 << 20);
  Process other(With(worker, {"--name", "other", "--state-dir", dir / "b"}));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_THAT(central.err(), AllOf(HasSubstr("worker starved failed: "),
                                   HasSubstr(" while it prepared its stage: give it fewer layers"),
                                   HasSubstr("--memory-mb")));
  EXPECT_TRUE(starved.WaitForOutput("has failed: ")) << starved.err();
  EXPECT_GE(starved.Wait(30), 0) << "it ends by itself: " << starved.err();
}

// As the kernel does it. The run goes on without it.
TEST(Memory, AWorkerThatTheSystemKillsIsNamed) {
  ScratchDir dir;
  Process central({"runnel-central", "train", "--quick", "--model", "lenet", "--dataset",
                   "synthetic_digits", "--eval-every", "-1", "--batch-size", "32",
                   "--barrier-every", "10", "--max-batches", "150", "--local-workers", "3",
                   "--journal", dir / "j"});
  ASSERT_TRUE(WaitForRecords(dir / "j", "barrier", 2)) << central.err();
  ASSERT_TRUE(KillWorker(central, "local-001"));
  EXPECT_TRUE(central.WaitForOutput("worker local-001 ended with signal 9")) << central.err();
  EXPECT_EQ(central.Wait(), 0) << central.err();
}

}  // namespace
}  // namespace runnel::memory_test
