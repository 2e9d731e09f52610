// Real workers whose arithmetic is a Hexagon DSP's, emulated by a program beside them: the bytes of
// the CPU's, and one clear line when the program is lost. Skipped where there is no emulator.

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/hexagon/hexagon_backend.h"
#include "tests/process/central_runs.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--recipe", "niti",
                    "--batch-size", "8", "--eval-every", "-1", "--eval-batch-size", "50", "--schedule", "sync_1f1b"};
// clang-format on
const Words kShort = With(kRun, {"--micro-batches", "2", "--max-batches", "4"});

class HexagonTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsHexagonInstalled("hexagon")) GTEST_SKIP() << "no DSP here: runnel-dsp or qemu-hexagon";
  }
};

// Without micro-batches, and with sums of gradients in 64 bits.
TEST_F(HexagonTraining, GivesTheWeightsOfTheCpu) {
  for (const Words& run : {kShort, With(kRun, {"--max-batches", "3"})}) {
    const std::string cpu = Weights(With(run, {"--backend", "cpu", "--local-workers", "0"}));
    EXPECT_EQ(cpu.size(), 64u);
    EXPECT_EQ(Weights(With(run, {"--backend", "hexagon", "--local-workers", "1"})), cpu);
  }
}

TEST_F(HexagonTraining, OneStageOnTheCpuAndOneOnTheDspGiveThePlainLoopsWeights) {
  ExpectWeightsOfPlainLoops(kShort, "hexagon");
}

// The emulator's process among the children of any of a worker's threads.
std::optional<pid_t> DspOf(pid_t worker) {
  std::error_code gone;
  const std::string threads = absl::StrCat("/proc/", worker, "/task");
  for (const auto& thread : std::filesystem::directory_iterator(threads, gone)) {
    std::ifstream file(thread.path() / "children");
    for (pid_t pid; file >> pid;) {
      const std::string command = ReadFile(absl::StrCat("/proc/", pid, "/cmdline"));
      if (absl::StrContains(command, "runnel-dsp")) return pid;
    }
  }
  return std::nullopt;
}

TEST_F(HexagonTraining, ScalesAreNotKeptButSpeculationIsDynamic) {
  const Words sync =
      With(kRun, {"--backend", "hexagon", "--local-workers", "1", "--max-batches", "2"});
  EXPECT_EQ(Weights(With(sync, {"--rescale", "speculate"})), Weights(sync));
  Process central(With({"runnel-central"}, With(sync, {"--rescale", "adaptive"})));
  EXPECT_NE(central.Wait(60), 0);
  EXPECT_THAT(central.err(),
              HasSubstr("--rescale adaptive: backend hexagon keeps no scales; take"));
}

TEST_F(HexagonTraining, AKilledDspProgramIsOneClearLine) {
  ScratchDir dir;
  Process central(With({"runnel-central"},
                       With(kRun, {"--backend", "hexagon", "--local-workers", "1", "--max-batches",
                                   "100000", "--barrier-every", "2", "--journal", dir / "j"})));
  ASSERT_TRUE(WaitForRecords(dir / "j", "barrier", 1)) << central.err();
  std::optional<pid_t> dsp;
  for (pid_t worker : central.Children()) {
    if (!dsp) dsp = DspOf(worker);
  }
  ASSERT_TRUE(dsp.has_value());
  kill(*dsp, SIGKILL);
  EXPECT_NE(central.Wait(60), 0);
  EXPECT_THAT(central.err(), HasSubstr("backend hexagon: the DSP program was ended by signal 9"));
}

}  // namespace
}  // namespace runnel
