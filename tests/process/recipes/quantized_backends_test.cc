// A quantised model evaluated on every backend of INT8 inference that is here: the same accuracy
// and loss, also when a device is lost on the way; what cannot compute is refused in one line.

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::quantized_backends_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A LeNet after a few steps, in codes with zeros of both kinds.
class QuantizedBackends : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new ScratchDir;
    RunCentral({"train", "--model", "lenet", "--dataset", "synthetic_digits", "--local-workers",
                "0", "--max-batches", "20", "--eval-every", "-1", "--checkpoint-dir",
                *dir_ / "trained"});
    Process quantize({"runnel-central", "quantize", "--checkpoint-dir", *dir_ / "trained", "--out",
                      *dir_ / "model.q8", "--scheme", "asymmetric", "--samples", "100"});
    EXPECT_EQ(quantize.Wait(), 0) << quantize.err();
  }
  static void TearDownTestSuite() { delete dir_; }

  static Words Command(const std::string& backend) {
    return {"eval", "--quantized", *dir_ / "model.q8", "--backend", backend};
  }
  static void ExpectRefused(
      const Words& words, const std::string& text, std::function<void()> prepare = [] {}) {
    Process central(With({"runnel-central"}, words), std::move(prepare));
    EXPECT_EQ(central.Wait(), 2) << central.err();
    // The worker's own line may stand before central's.
    std::string err = central.err();
    const size_t last = err.find("runnel-central: ");
    ASSERT_NE(last, err.npos) << err;
    err = err.substr(last);
    EXPECT_THAT(err, HasSubstr(text));
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
  }
  static bool Has(const std::string& backend) {
    const std::vector<std::string> there = BackendNames();
    return std::find(there.begin(), there.end(), backend) != there.end();
  }

  // What computed the one stage, by its numerics class.
  static std::string BackendOf(const json& summary) {
    EXPECT_EQ(summary["stages"].size(), 1u);
    const std::string numerics_class = summary["stages"][0].value("numerics_class", "");
    return numerics_class.substr(0, numerics_class.find('/'));
  }

  static ScratchDir* dir_;
};
ScratchDir* QuantizedBackends::dir_ = nullptr;

TEST_F(QuantizedBackends, GiveTheSameAccuracyAndLoss) {
  const json cpu = RunCentral(Command("auto"));
  EXPECT_EQ(BackendOf(cpu), "cpu");
  EXPECT_GT(cpu["accuracy"], 0.2);
  for (const char* backend : {"cpu", "ref", "opencl", "hexagon"}) {
    if (!Has(backend)) {
      std::printf("no %s here: not compared\n", backend);
      continue;
    }
    const json summary = RunCentral(Command(backend));
    EXPECT_EQ(BackendOf(summary), backend);
    EXPECT_EQ(summary["accuracy"], cpu["accuracy"]) << backend;
    EXPECT_EQ(summary["loss"], cpu["loss"]) << backend;
  }
}

TEST_F(QuantizedBackends, TheLineSaysWhatComputed) {
  Process central(With({"runnel-central"}, Command("ref")));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_THAT(central.out(), HasSubstr("; 1 stage, ref) after 20 steps: accuracy "));
}

TEST_F(QuantizedBackends, WhatCannotComputeIsRefusedInOneLine) {
  ExpectRefused(Command("gpu"), "--backend gpu: worker local-000 has cpu, small, ref");
  ExpectRefused(With(Command("hexagon"), {"--backend-option", "hexagon.dsp=device"}),
                "--backend hexagon: worker local-000 has cpu, small, ref");
  ExpectRefused({"eval", "--checkpoint-dir", *dir_ / "trained", "--backend", "ref"},
                "give --quantized too");
  if (Has("hexagon")) {
    ExpectRefused(With(Command("hexagon"), {"--profile", *dir_ / "r.json"}),
                  "backend hexagon tells no times of single nodes; take cpu");
  }
}

#ifdef RUNNEL_OPENCL_FAULTS
// With faults of tests/kernels/opencl/opencl_faults.h.
std::function<void()> Faulty(const std::string& variable, const std::string& value) {
  return [=] {
    setenv("LD_PRELOAD", RUNNEL_OPENCL_FAULTS, 1);
    setenv(variable.c_str(), value.c_str(), 1);
  };
}

class QuantizedOpenCl : public QuantizedBackends {
 protected:
  void SetUp() override {
    if (!Has("opencl")) GTEST_SKIP() << "no OpenCL driver here";
  }
};

TEST_F(QuantizedOpenCl, AfterALostDeviceTheCpuGoesOn) {
  const json cpu = RunCentral(Command("cpu"));
  const struct {
    std::string variable, value, why;
  } kCases[] = {{"RUNNEL_TEST_OPENCL_KERNELS", "250", "is lost: kernel "},
                {"RUNNEL_TEST_OPENCL_BUFFERS", "2", "ALLOCATION_FAILURE"}};
  for (const auto& [variable, value, why] : kCases) {
    Process central(With({"runnel-central"}, With(Command("opencl"), {"--summary", *dir_ / "s"})),
                    Faulty(variable, value));
    EXPECT_EQ(central.Wait(), 0) << central.err();
    EXPECT_THAT(central.err(), HasSubstr(why));
    const json summary = json::parse(ReadFile(*dir_ / "s"));
    EXPECT_EQ(BackendOf(summary), "cpu");
    EXPECT_EQ(summary["loss"], cpu["loss"]);
  }
}

TEST_F(QuantizedOpenCl, ADeviceThatComputesWrongOrIsNotThereIsRefused) {
  ExpectRefused(Command("opencl"),
                "computes integers wrong: ", Faulty("RUNNEL_TEST_OPENCL_NOTHING", "1"));
  ExpectRefused(Command("opencl"), "--backend opencl: worker local-000 has cpu, small, ref",
                [] { setenv("OCL_ICD_VENDORS", "/nowhere", 1); });
}

TEST_F(QuantizedOpenCl, TheProfileNamesItsKernels) {
  const std::string path = *dir_ / "opencl.json";
  Process central(With({"runnel-central"}, With(Command("opencl"), {"--profile", path})));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  const json report = json::parse(ReadFile(path));
  ASSERT_EQ(report["layers"].size(), 8u);
  EXPECT_EQ(report["layers"][3]["kernel"], "direct opencl");
  EXPECT_GT(report["layers"][3]["ms"], 0);
  EXPECT_EQ(report["peak_gops"], 0);
}
#endif

}  // namespace
}  // namespace runnel::quantized_backends_test
