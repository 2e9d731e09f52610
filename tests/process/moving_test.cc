// Layers move away from a worker that becomes slow, with real processes: the weights are those of a
// run without any move, and a journal of it replays.

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/process/central_runs.h"

namespace runnel {
namespace {

constexpr const char* kControlGroups = "/sys/fs/cgroup/cpu";
constexpr absl::string_view kGroupPrefix = "runnel-test-";

// Removes the control groups of earlier tests that were killed: the number in the name is that of a
// process which is gone.
void RemoveStaleGroups() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kControlGroups, ignored)) {
    const std::string name = entry.path().filename().string();
    absl::string_view pid = name;
    if (absl::ConsumePrefix(&pid, kGroupPrefix) &&
        !std::filesystem::exists(absl::StrCat("/proc/", pid), ignored))
      rmdir(entry.path().c_str());
  }
}

// A share of one core for a process, by a control group (version 1); needs root.
class Throttle {
 public:
  explicit Throttle(int percent)
      : path_(absl::StrCat(kControlGroups, "/", kGroupPrefix, getpid())) {
    RemoveStaleGroups();
    ready_ = mkdir(path_.c_str(), 0755) == 0 && Write("cpu.cfs_period_us", "20000") &&
             Write("cpu.cfs_quota_us", absl::StrCat(percent * 200));
  }
  // What was throttled must have ended.
  ~Throttle() { rmdir(path_.c_str()); }

  bool ready() const { return ready_; }
  bool Take(pid_t pid) { return Write("cgroup.procs", absl::StrCat(pid)); }

 private:
  bool Write(const std::string& file, const std::string& value) {
    std::ofstream out(absl::StrCat(path_, "/", file));
    out << value << std::flush;
    return out.good();
  }

  std::string path_;
  bool ready_ = false;
};

int Plans(const std::string& journal) {
  int plans = 0;
  for (absl::string_view line : absl::StrSplit(ReadFile(journal), '\n')) {
    if (absl::StrContains(line, R"("record":"plan")")) ++plans;
  }
  return plans;
}

pid_t WorkerNamed(const Process& central, const std::string& name) {
  for (pid_t pid : central.Children()) {
    const std::string words = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
    if (absl::StrContains(words, name)) return pid;
  }
  return -1;
}

const Words kRun = {"train",
                    "--model",
                    "lenet",
                    "--dataset",
                    "synthetic_digits",
                    "--micro-batches",
                    "2",
                    "--epochs",
                    "2",
                    "--eval-every",
                    "0",
                    "--barrier-every",
                    "10"};

// Of a core, for the worker that becomes slow. The sanitizers' runtime needs more to get anywhere.
#ifdef __SANITIZE_ADDRESS__
constexpr int kSlowPercent = 20;
#else
constexpr int kSlowPercent = 5;
#endif

class Moving : public ::testing::TestWithParam<const char*> {};

TEST_P(Moving, LayersLeaveASlowWorkerAndTheWeightsAreTheSame) {
  Throttle throttle(kSlowPercent);
  if (!throttle.ready()) {
    GTEST_SKIP() << "needs root and a writable control group of the processor (version 1)";
  }
  ScratchDir dir;
  const std::string journal = dir / "journal.jsonl";
  const Words run = With(kRun, {"--schedule", GetParam()});
  Process central(With({"runnel-central"},
                       With(run, {"--local-workers", "2", "--policy", "dp", "--replan", "on",
                                  "--journal", journal, "--summary", dir / "moved.json"})));
  ASSERT_TRUE(WaitForText(journal, R"("record":"barrier")")) << central.err();
  // Whoever has conv2, most of the work: the two cuts beside it are as good, and noise decides.
  const std::string plan = ReadFile(journal);
  const bool is_second = absl::StrContains(plan, R"("first_layer":0,"last_layer":0)") ||
                         absl::StrContains(plan, R"("first_layer":0,"last_layer":1)");
  const pid_t slow = WorkerNamed(central, is_second ? "local-001" : "local-000");
  ASSERT_GT(slow, 0);
  ASSERT_TRUE(throttle.Take(slow));
  ASSERT_EQ(central.Wait(), 0) << central.out() << central.err();
  EXPECT_GE(Plans(journal), 2) << central.out() << central.err();

  const std::string moved = Summary(dir / "moved.json")["weights_sha256"];
  EXPECT_EQ(moved, Weights(With(run, {"--local-workers", "2"})));
  EXPECT_EQ(moved, Weights({"replay", "--journal", journal}));
}

INSTANTIATE_TEST_SUITE_P(Schedules, Moving, ::testing::Values("sync_1f1b", "zb_h1"));

}  // namespace
}  // namespace runnel
