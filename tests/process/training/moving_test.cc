// Layers move away from a worker that becomes slow, with real processes: the weights are those of a
// run without any move, and a journal of it replays.

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/process/central_runs.h"

namespace runnel::moving_test {
namespace {

// Lets a process run for a part of the time only, as a hot or busy device does: stops it and lets
// it go on in turn, until the process has ended or this object goes.
class SlowDown {
 public:
  SlowDown(pid_t pid, int percent)
      : process_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))),
        thread_([this, percent] { Run(percent); }) {}
  ~SlowDown() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
    close(process_);
  }
  SlowDown(const SlowDown&) = delete;

 private:
  // False if the process has ended. By a descriptor: another process may have its number by now.
  bool Send(int signal) {
    return syscall(SYS_pidfd_send_signal, process_, signal, nullptr, 0) == 0;
  }
  void Run(int percent) {
    constexpr std::chrono::microseconds kPeriod(20'000);
    std::unique_lock<std::mutex> lock(mutex_);
    while (!done_ && Send(SIGSTOP)) {
      changed_.wait_for(lock, kPeriod * (100 - percent) / 100, [this] { return done_; });
      Send(SIGCONT);
      changed_.wait_for(lock, kPeriod * percent / 100, [this] { return done_; });
    }
  }

  const int process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

int Plans(const std::string& journal) {
  int plans = 0;
  for (absl::string_view line : absl::StrSplit(ReadFile(journal), '\n')) {
    if (absl::StrContains(line, R"("record":"plan")")) ++plans;
  }
  return plans;
}

const Words kRun = {"train",
                    "--model",
                    "lenet",
                    "--dataset",
                    "synthetic_digits",
                    "--micro-batches",
                    "2",
                    "--batch-size",
                    "32",
                    "--epochs",
                    "1",
                    "--eval-every",
                    "0",
                    "--barrier-every",
                    "10"};

// Of the time, for the worker that becomes slow. The sanitizers' runtime needs more to get
// anywhere.
#ifdef __SANITIZE_ADDRESS__
constexpr int kSlowPercent = 20;
#else
constexpr int kSlowPercent = 5;
#endif

class Moving : public ::testing::TestWithParam<const char*> {};

// A run in which one worker becomes slow at the first barrier: its weights, and how many plans its
// journal at `journal` has.
struct SlowedRun {
  std::string weights;
  int plans = 0;
  std::string output;
};

absl::StatusOr<SlowedRun> TrainAndSlowDown(const Words& run, const ScratchDir& dir,
                                           const std::string& journal) {
  Process central(With({"runnel-central"},
                       With(run, {"--local-workers", "2", "--policy", "dp", "--replan", "on",
                                  "--journal", journal, "--summary", dir / "moved.json"})));
  if (!WaitForText(journal, R"("record":"barrier")")) return absl::InternalError(central.err());
  // Whoever has conv2, most of the work: the two cuts beside it are as good, and noise decides.
  const std::string plan = ReadFile(journal);
  const bool is_second = absl::StrContains(plan, R"("first_layer":0,"last_layer":0)") ||
                         absl::StrContains(plan, R"("first_layer":0,"last_layer":1)");
  const std::optional<pid_t> slow = WorkerNamed(central, is_second ? "local-001" : "local-000");
  if (!slow.has_value()) return absl::InternalError("no worker of that name");
  const SlowDown slow_down(*slow, kSlowPercent);
  const int code = central.Wait();
  const std::string output = absl::StrCat(central.out(), central.err());
  if (code != 0) return absl::InternalError(output);
  return SlowedRun{Summary(dir / "moved.json")["weights_sha256"], Plans(journal), output};
}

// Every run must have the same weights, moved or not. That layers move is asked of one in three:
// on a machine that is busy from the start the slow worker may not stand out.
TEST_P(Moving, LayersLeaveASlowWorkerAndTheWeightsAreTheSame) {
  constexpr int kAttempts = 3;
  const Words run = With(kRun, {"--schedule", GetParam()});
  const std::string undisturbed = Weights(With(run, {"--local-workers", "2"}));
  bool has_moved = false;
  for (int i = 0; i < kAttempts && !has_moved; ++i) {
    ScratchDir dir;
    const std::string journal = dir / "journal.jsonl";
    const absl::StatusOr<SlowedRun> slowed = TrainAndSlowDown(run, dir, journal);
    ASSERT_TRUE(slowed.ok()) << slowed.status();
    EXPECT_EQ(slowed->weights, undisturbed);
    has_moved = slowed->plans >= 2;
    if (has_moved) {
      EXPECT_EQ(slowed->weights, Weights({"replay", "--journal", journal}));
    } else {
      std::cout << "no move in attempt " << i + 1 << "\n" << slowed->output << "\n";
    }
  }
  EXPECT_TRUE(has_moved);
}

// FTPipeHD from end to end: the even cut, of which nothing but central's own times is known, and
// whatever cut its ratios make of that at step 10 and later.
TEST(Ftpipehd, BeginsWithTheEvenCut) {
  ScratchDir dir;
  const std::string journal = dir / "journal.jsonl";
  const Words run = With(kRun, {"--schedule", "sync_1f1b", "--max-batches", "40"});
  const std::string weights =
      Weights(With(run, {"--local-workers", "2", "--policy", "ftpipehd", "--journal", journal}));
  const std::string text = ReadFile(journal);
  const size_t first = text.find(R"("record":"plan")");
  ASSERT_NE(first, std::string::npos);
  const std::string plan = text.substr(first, text.find('\n', first) - first);
  EXPECT_TRUE(absl::StrContains(plan, R"("first_layer":0,"last_layer":2)")) << plan;
  const size_t times = plan.find("_seconds\":[");
  ASSERT_NE(times, std::string::npos) << plan;
  EXPECT_EQ(plan.find("_seconds\":[", times + 1), std::string::npos) << "of the first device only";
  EXPECT_EQ(weights, Weights(With(run, {"--local-workers", "2", "--quick"})));
  EXPECT_EQ(weights, Weights({"replay", "--journal", journal}));
}

INSTANTIATE_TEST_SUITE_P(Schedules, Moving, ::testing::Values("sync_1f1b", "zb_h1"));

}  // namespace
}  // namespace runnel::moving_test
