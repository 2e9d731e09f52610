// A model in integers by real workers: any number of stages, here and elsewhere, gives the figures
// of one stage to the last bit, also when workers are lost on the way.

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::quantized_stages_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A LeNet and a ResNet-38 of a few steps, once for all tests.
class QuantizedStages : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new ScratchDir;
    Quantize("lenet", {"--dataset", "synthetic_digits", "--max-batches", "60"});
    WriteImages(*dir_ / "data_batch_1.bin", 100);
    WriteImages(*dir_ / "test_batch.bin", 70);
    Quantize("resnet38", {"--dataset", "cifar10", "--data-dir", dir_->path(), "--max-batches", "2",
                          "--batch-size", "16"});
  }
  static void TearDownTestSuite() { delete dir_; }

  static std::string File(const std::string& model) { return *dir_ / (model + ".q8"); }
  static void Quantize(const std::string& model, const Words& training) {
    const std::string folder = *dir_ / model;
    RunCentral(With({"train", "--model", model, "--local-workers", "0", "--eval-every", "-1",
                     "--checkpoint-dir", folder},
                    training));
    Process central({"runnel-central", "quantize", "--checkpoint-dir", folder, "--out", File(model),
                     "--samples", "50"});
    EXPECT_EQ(central.Wait(), 0) << central.err();
  }
  static Words Eval(const std::string& model, const Words& more = {}) {
    return With({"eval", "--quantized", File(model)}, more);
  }
  static void ExpectSame(const json& got, const json& plain) {
    for (const char* key : {"accuracy", "loss", "weights_sha256", "steps"})
      EXPECT_EQ(got[key], plain[key]) << key;
  }

  static ScratchDir* dir_;
};
ScratchDir* QuantizedStages::dir_ = nullptr;

TEST_F(QuantizedStages, AnyNumberOfStagesGivesTheSameFigures) {
  for (const char* model : {"lenet", "resnet38"}) {
    const json plain = RunCentral(Eval(model));
    EXPECT_GT(plain.value("loss", 0.0), 0);
    for (const char* stages : {"0", "2", "3"}) {
      SCOPED_TRACE(testing::Message() << model << ", " << stages << " stages");
      const json summary = RunCentral(
          Eval(model, {"--local-workers", stages, "--quick", "--eval-batch-size", "17"}));
      ExpectSame(summary, plain);
      EXPECT_EQ(summary["plan"]["stages"].size(), std::max<size_t>(1, stages[0] - '0'));
      EXPECT_GT(summary.value("samples_per_s", 0.0), 0);
      EXPECT_TRUE(summary["recoveries"].empty());
    }
  }
}

// Each worker times the layers in integers, and the fastest cut is taken.
TEST_F(QuantizedStages, PlansComeFromMeasuredLayers) {
  const json plain = RunCentral(Eval("resnet38"));
  const json summary = RunCentral(Eval("resnet38", {"--local-workers", "2", "--policy", "dp"}));
  ExpectSame(summary, plain);
  EXPECT_EQ(summary["plan"]["stages"].size(), 2u);
  EXPECT_EQ(summary["policy"], "dp");
  EXPECT_GT(summary.value("predicted_samples_per_s", 0.0), 0);
}

// Two daemons and the stage that is always here; one of them computes in plain loops.
TEST_F(QuantizedStages, WorkersThatDialInHaveStages) {
  const json plain = RunCentral(Eval("lenet"));
  ScratchDir dir;
  Process central(With({"runnel-central"},
                       Eval("lenet", {"--workers", "2", "--quick", "--summary", dir / "s"})));
  const std::string address = WorkersAddress(central);
  const auto worker = [&](const std::string& name, const std::string& backend) {
    return Words{"runnel-worker", "--once",   "--central", address, "--name", name,
                 "--state-dir",   dir / name, "--backend", backend};
  };
  Process first(worker("one", "cpu"));
  Process second(worker("two", "ref"));
  EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  EXPECT_EQ(first.Wait(), 0) << first.err();
  EXPECT_EQ(second.Wait(), 0) << second.err();
  const json summary = Summary(dir / "s");
  ExpectSame(summary, plain);
  ASSERT_EQ(summary["plan"]["stages"].size(), 3u);
  EXPECT_EQ(summary["plan"]["stages"][0]["device"], "local-000");
}

// Over links so slow that the evaluation is under way when the workers are killed.
TEST_F(QuantizedStages, LostWorkersAreDoneWithout) {
  const json plain = RunCentral(Eval("lenet"));
  for (const Words& lost : std::vector<Words>{{"local-000"}, {"local-001", "local-002"}}) {
    SCOPED_TRACE(testing::PrintToString(lost));
    ScratchDir dir;
    Process central(
        With({"runnel-central"}, Eval("lenet", {"--local-workers", "3", "--quick", "--link-mbps",
                                                "2", "--summary", dir / "s"})));
    ASSERT_TRUE(central.WaitForOutput("evaluating: ")) << central.out() << central.err();
    for (const std::string& name : lost) ASSERT_TRUE(KillWorker(central, name));
    EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
    for (const std::string& name : lost)
      EXPECT_THAT(central.err() + central.out(), HasSubstr(name + " was lost"));
    const json summary = Summary(dir / "s");
    ExpectSame(summary, plain);
    EXPECT_GE(summary["recoveries"].size(), 1u);
  }
}

TEST_F(QuantizedStages, WhatDoesNotFitIsRefusedInOneLine) {
  ExpectRefused(Eval("lenet", {"--local-workers", "7", "--quick"}), "7 stages cannot be cut");
  ExpectRefused(Eval("lenet", {"--local-workers", "-1"}), "--local-workers -1");
  ExpectRefused(Eval("lenet", {"--local-workers", "0", "--workers", "2"}), "--workers 2");
  ExpectRefused(Eval("lenet", {"--local-workers", "2", "--policy", "accept"}), "--policy accept");
  ExpectRefused(Eval("lenet", {"--local-workers", "2", "--policy", "best"}), "--policy best");
  ExpectRefused(Eval("lenet", {"--workers", "1", "--listen", "192.0.2.1:7000"}), "192.0.2.1:7000");
  ExpectRefused(Eval("lenet", {"--local-workers", "2", "--profile", *dir_ / "r.svg"}), "--profile");
  ExpectRefused({"eval", "--checkpoint-dir", *dir_ / "lenet", "--local-workers", "2"},
                "give --quantized too");
  std::string damaged = ReadFile(File("lenet"));
  damaged[damaged.size() / 2] ^= 1;
  std::ofstream(*dir_ / "damaged.q8", std::ios::binary) << damaged;
  ExpectRefused({"eval", "--quantized", *dir_ / "damaged.q8", "--local-workers", "2"},
                "is damaged");
}

TEST_F(QuantizedStages, SeveralProcessorsComputeAStageToo) {
  ExpectSame(RunCentral(Eval("lenet", {"--local-workers", "2", "--backend", "cpu,ref"})),
             RunCentral(Eval("lenet")));
}

TEST_F(QuantizedStages, ABackendThatDoesNotComputeIntegersEndsInOneLine) {
  // Where LibTorch was not built in, the line says that there is no such backend.
  Process central(
      With({"runnel-central"}, Eval("lenet", {"--local-workers", "2", "--backend", "torch"})));
  EXPECT_EQ(central.Wait(60), 2) << central.err();
  EXPECT_THAT(central.err(), HasSubstr("torch"));
}

}  // namespace
}  // namespace runnel::quantized_stages_test
