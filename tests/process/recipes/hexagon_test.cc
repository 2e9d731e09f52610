// Real workers whose arithmetic is a Hexagon DSP's, emulated by a program beside them: the bytes of
// the CPU's, also when the program is lost and the stage goes on on the CPU. Skipped where there is
// no emulator.

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/hexagon/hexagon_backend.h"
#include "tests/process/central_runs.h"

namespace runnel::hexagon_test {
namespace {

using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--recipe", "niti",
                    "--batch-size", "4", "--eval-every", "-1", "--eval-batch-size", "50", "--schedule", "sync_1f1b"};
// clang-format on
const Words kShort = With(kRun, {"--micro-batches", "2", "--max-batches", "4"});

class HexagonTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsHexagonInstalled("hexagon", {}))
      GTEST_SKIP() << "no DSP here: runnel-dsp or qemu-hexagon";
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

TEST_F(HexagonTraining, ALimitOfTheDspsMemoryChangesNoByte) {
  for (const char* megabytes : {"12", "200"}) {
    std::string log;
    ExpectWeightsOfPlainLoops(kShort, "hexagon", &log, {"--device-memory-mb", megabytes});
    EXPECT_THAT(log, testing::Not(HasSubstr("computes on its CPU"))) << megabytes;
  }
  Process little({"runnel-worker", "--central", "127.0.0.1:1", "--connect-timeout-ms", "100",
                  "--backend", "hexagon", "--device-memory-mb", "7"});
  EXPECT_EQ(little.Wait(), 2);
  EXPECT_THAT(little.err(), HasSubstr("--device-memory-mb gives the DSP 7000000 bytes; its "
                                      "programs need 8000000 at least"));
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

TEST_F(HexagonTraining, ScalesAreKeptAndSpeculationIsDynamic) {
  const Words sync = With(kRun, {"--local-workers", "1", "--max-batches", "4"});
  const Words dsp = With(sync, {"--backend", "hexagon"});
  const std::string dynamic = Weights(dsp);
  EXPECT_EQ(Weights(With(dsp, {"--rescale", "speculate"})), dynamic);
  const std::string kept = Weights(With(dsp, {"--rescale", "static:1"}));
  EXPECT_EQ(kept, Weights(With(sync, {"--backend", "cpu", "--rescale", "static:1"})));
  EXPECT_NE(kept, dynamic);
}

// Sends `signal` to the DSP program of one of the workers when the run is at its first barrier, and
// waits for the run's good end: with the weights of the CPU, in central's and the worker's log
// `why`, and a journal that gives these weights again.
void ExpectTheCpuGoesOn(int workers, int signal, const std::string& why,
                        const std::string& backend = "hexagon") {
  ScratchDir dir;
  const Words run = With(kRun, {"--max-batches", "4", "--barrier-every", "2"});
  const std::string cpu = Weights(With(run, {"--backend", "cpu", "--local-workers", "0"}));
  // A busy machine is not to be taken for a DSP that hangs where none does.
  const char* stall = signal == SIGSTOP ? "hexagon.stall_s=2" : "hexagon.stall_s=60";
  const Words command =
      With(run, {"--backend", backend, "--local-workers", absl::StrCat(workers), "--backend-option",
                 stall, "--journal", dir / "j", "--summary", dir / "s"});
  Process central(With({"runnel-central"}, command));
  ASSERT_TRUE(WaitForRecords(dir / "j", "barrier", 1)) << central.err();
  std::optional<pid_t> dsp;
  for (pid_t worker : central.Children()) {
    if (!dsp) dsp = DspOf(worker);
  }
  ASSERT_TRUE(dsp.has_value());
  kill(*dsp, signal);
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_THAT(central.err(), HasSubstr("was lost: the DSP program " + why));
  EXPECT_THAT(central.err(), HasSubstr("backend hexagon: the DSP program " + why));
  const nlohmann::json summary = Summary(dir / "s");
  EXPECT_EQ(summary["weights_sha256"], cpu);
  EXPECT_EQ(summary["recoveries"].size(), 1u);
  EXPECT_EQ(Records(dir / "j", "worker_lost"), 0);
  Replay(dir / "j");
}

TEST_F(HexagonTraining, AfterAKilledDspProgramTheCpuGoesOn) {
  ExpectTheCpuGoesOn(2, SIGKILL, "was ended by signal 9");
}

TEST_F(HexagonTraining, AfterADspProgramThatHangsTheCpuGoesOn) {
  ExpectTheCpuGoesOn(1, SIGSTOP, "hangs: nothing done for 2 s");
}

// The lane of one processor ends that of the other.
TEST_F(HexagonTraining, AfterALostDspAmongSeveralProcessorsTheCpuGoesOn) {
  ExpectTheCpuGoesOn(2, SIGKILL, "was ended by signal 9", "cpu,hexagon@alternate");
  ExpectTheCpuGoesOn(1, SIGSTOP, "hangs: nothing done for 2 s",
                     "cpu,hexagon@int8_conv_weight_gradient=hexagon+int8_linear_forward=hexagon");
}

// An emulator's times would be learned from as if a processor had them.
TEST_F(HexagonTraining, NoProfileIsWrittenOfAnEmulator) {
  const ScratchDir dir;
  // clang-format off
  Process lab({"runnel-lab", "profile", "--models", "lenet", "--recipe", "niti", "--batch-size", "1", "--max-macs", "1",
               "--burst-ms", "0", "--extra", "0", "--backend", "hexagon", "--name", "dsp", "--family", "dsp", "--host",
               "here", "--out", dir / "p"});
  // clang-format on
  EXPECT_EQ(lab.Wait(), 2) << lab.out();
  EXPECT_THAT(lab.err(), HasSubstr("an emulator's times are no processor's"));
  EXPECT_FALSE(std::filesystem::exists(dir / "p"));
}

}  // namespace
}  // namespace runnel::hexagon_test
