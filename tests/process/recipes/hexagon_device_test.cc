// Real workers on the DSP of a device, with a double of the vendor's library
// (tests/kernels/dsp_device): the bytes of the CPU's, also when the DSP fails on the way. Skipped
// where there is no emulator.

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/dsp_device/device_double.h"
#include "tests/process/central_runs.h"

namespace runnel::hexagon_device_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--recipe", "niti",
                    "--batch-size", "4", "--eval-every", "-1", "--eval-batch-size", "50", "--schedule", "sync_1f1b",
                    "--barrier-every", "2", "--max-batches", "5"};
// clang-format on

// For programs that a test starts.
void UseDouble(const std::string& fault, const std::string& variant = "") {
  setenv("RUNNEL_DSP_LIBRARY", hexagon::DoublePath(variant).c_str(), 1);
  setenv("RUNNEL_DOUBLE_FAULT", fault.c_str(), 1);
}
// Where nothing hangs, a busy machine is no reason.
Words StallAfter(const std::string& fault) {
  return {"--backend-option",
          fault.rfind("hang", 0) == 0 ? "hexagon.stall_s=2" : "hexagon.stall_s=100"};
}

class DeviceTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status status = hexagon::HasDouble(); !status.ok())
      GTEST_SKIP() << "no DSP here: " << status.message();
  }
  static std::string CpuWeights() {
    return Weights(With(kRun, {"--backend", "cpu", "--local-workers", "0"}));
  }
};

TEST_F(DeviceTraining, TheCheckSaysWhichDspItIsAndHowItIsReached) {
  Process check({"runnel-worker", "--check"}, [] { UseDouble("queue"); });
  EXPECT_EQ(check.Wait(), 0) << check.err();
  EXPECT_THAT(
      check.out(),
      ContainsRegex("hexagon +yes +Hexagon DSP v66, 4 vector units, 256 KiB VTCM, by remote "
                    "calls .no packet queue: no queue can be made: error 0x14 .not "
                    "supported.. with librunnel_dsp_v66.so, not verified on hardware, "));
  EXPECT_THAT(check.out(), HasSubstr("MiB for stages, dot product vrmpy; integers as ref"));
}

TEST_F(DeviceTraining, TheCheckSaysWhyADeviceIsNone) {
  Process check({"runnel-worker", "--check"}, [] { UseDouble("unsigned"); });
  EXPECT_EQ(check.Wait(), 0) << check.err();
  EXPECT_THAT(check.out(),
              ContainsRegex("hexagon +no +no DSP here: the DSP takes no unsigned modules\n"));
}

TEST_F(DeviceTraining, GivesTheWeightsOfTheCpu) {
  const std::string cpu = CpuWeights();
  EXPECT_EQ(cpu.size(), 64u);
  for (const char* variant : {"", "_without_queues"}) {
    ScratchDir dir;
    Process central(
        With({"runnel-central"}, With(kRun, With({"--backend", "hexagon", "--local-workers", "2",
                                                  "--summary", dir / "s"},
                                                 StallAfter("")))),
        [&] { UseDouble("", variant); });
    EXPECT_EQ(central.Wait(), 0) << central.err();
    const nlohmann::json summary = Summary(dir / "s");
    EXPECT_EQ(summary["weights_sha256"], cpu) << variant;
    EXPECT_EQ(summary["recoveries"].size(), 0u);
  }
}

// When the session has run this many lists: the check of the backend takes 8, a step 4 or more.
struct Failure {
  const char* name;
  const char* fault;
  const char* error;
};
constexpr Failure kFailures[] = {
    {"invoke", "invoke:25", "'s queue takes no packet: error 0x72 (connection refused)"},
    {"length", "length:25", " answered with a message of a wrong length"},
    {"hang", "hang:25", " hangs: nothing done for 2 s"},
    {"vtcm", "vtcm:25", " got no VTCM (256 KiB): another program on the DSP has it"},
};

class DeviceFailureTest : public DeviceTraining, public testing::WithParamInterface<Failure> {};

TEST_P(DeviceFailureTest, TheCpuGoesOnWithTheSameBytes) {
  ScratchDir dir;
  Process central(
      With({"runnel-central"}, With(kRun, With({"--backend", "hexagon", "--local-workers", "1",
                                                "--journal", dir / "j", "--summary", dir / "s"},
                                               StallAfter(GetParam().fault)))),
      [] { UseDouble(GetParam().fault); });
  EXPECT_EQ(central.Wait(), 0) << central.err();
  const std::string error = std::string("the DSP program") + GetParam().error;
  EXPECT_THAT(central.err(), HasSubstr("was lost: " + error));
  EXPECT_THAT(central.err(), HasSubstr("backend hexagon: " + error));
  const nlohmann::json summary = Summary(dir / "s");
  EXPECT_EQ(summary["weights_sha256"], CpuWeights());
  EXPECT_EQ(summary["recoveries"].size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Failures, DeviceFailureTest, testing::ValuesIn(kFailures),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace runnel::hexagon_device_test
