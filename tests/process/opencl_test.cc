// Real workers that compute on an OpenCL device: the bytes of the CPU's, and one clear line where
// there is no device or it is lost. Skipped without a driver. Under PoCL, which computes on the
// CPU: correctness only, never speed.

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/process/central_runs.h"

namespace runnel {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--recipe", "niti",
                    "--batch-size", "8", "--eval-every", "-1", "--eval-batch-size", "50", "--schedule", "sync_1f1b"};
// clang-format on
const Words kShort = With(kRun, {"--micro-batches", "2", "--max-batches", "4"});
const Words kOpenCl = {"--backend", "opencl", "--local-workers", "1"};

class OpenClTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (!testing::Matches(Contains("opencl"))(BackendNames())) GTEST_SKIP() << "no OpenCL driver";
  }
};

// Without micro-batches, and with sums of gradients in 64 bits.
TEST_F(OpenClTraining, GivesTheWeightsOfTheCpu) {
  for (const Words& run : {kShort, With(kRun, {"--max-batches", "3"})}) {
    const std::string cpu = Weights(With(run, {"--backend", "cpu", "--local-workers", "0"}));
    EXPECT_EQ(cpu.size(), 64u);
    EXPECT_EQ(Weights(With(run, kOpenCl)), cpu);
  }
}

// What the device would not be given: another dot product, and state that is copied to be seen.
TEST_F(OpenClTraining, OtherWaysGiveTheSameWeights) {
  const std::string usual = Weights(With(kShort, kOpenCl));
  setenv("RUNNEL_OPENCL_DOT", "mad24", 1);
  setenv("RUNNEL_OPENCL_MEMORY", "copied", 1);
  EXPECT_EQ(Weights(With(kShort, kOpenCl)), usual);
  unsetenv("RUNNEL_OPENCL_DOT");
  unsetenv("RUNNEL_OPENCL_MEMORY");
}

TEST_F(OpenClTraining, OneStageOnTheCpuAndOneOnTheDeviceGiveThePlainLoopsWeights) {
  ExpectWeightsOfPlainLoops(kShort, "opencl");
}

std::string Failure(const char* variable, const char* value, const Words& more) {
  Process central(With({"runnel-central"}, With(kRun, With(kOpenCl, more))),
                  [&] { setenv(variable, value, 1); });
  EXPECT_GT(central.Wait(60), 0);
  return central.err();
}

TEST_F(OpenClTraining, WithoutADriverOrAKnownDeviceThereIsOneClearLine) {
  EXPECT_THAT(Failure("RUNNEL_OPENCL_DEVICE", "no such device", {"--max-batches", "2"}),
              HasSubstr("backend opencl: no OpenCL here: no device with RUNNEL_OPENCL_DEVICE"));
  EXPECT_THAT(Failure("RUNNEL_OPENCL_DOT", "abacus", {"--max-batches", "2"}),
              HasSubstr("RUNNEL_OPENCL_DOT 'abacus': device "));
  EXPECT_THAT(Failure("OCL_ICD_VENDORS", "/nowhere", {"--max-batches", "2"}),
              HasSubstr("--backend opencl: worker local-000 has cpu, ref"));
}

TEST_F(OpenClTraining, ALostDeviceIsOneClearLine) {
  setenv("RUNNEL_TEST_OPENCL_KERNELS", "400", 1);
  const std::string failure =
      Failure("LD_PRELOAD", RUNNEL_OPENCL_FAULTS, {"--max-batches", "100000"});
  unsetenv("RUNNEL_TEST_OPENCL_KERNELS");
  EXPECT_THAT(failure, HasSubstr("backend opencl: device "));
  EXPECT_THAT(failure, HasSubstr("is lost: kernel "));
}

}  // namespace
}  // namespace runnel
