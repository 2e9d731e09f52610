// INT8 inference by the real binaries: a trained model is quantised and evaluated; what does not
// fit is refused in one line.

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::quantize_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// A LeNet that was trained on generated digits, once for all tests.
class Quantize : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new ScratchDir;
    fp32_accuracy_ = RunCentral({"train", "--model", "lenet", "--dataset", "synthetic_digits",
                                 "--local-workers", "0", "--max-batches", "150", "--checkpoint-dir",
                                 *dir_ / "trained"})["accuracy"];
  }
  static void TearDownTestSuite() { delete dir_; }

  static std::string Path(const std::string& name) { return *dir_ / name; }
  static Words Command(const Words& more = {}) {
    return With({"quantize", "--checkpoint-dir", Path("trained"), "--out", Path("model.q8")}, more);
  }
  static void Run(const Words& words) {
    Process central(With({"runnel-central"}, words));
    EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  }
  static json Evaluate() { return RunCentral({"eval", "--quantized", Path("model.q8")}); }

  static ScratchDir* dir_;
  static double fp32_accuracy_;
};
ScratchDir* Quantize::dir_ = nullptr;
double Quantize::fp32_accuracy_ = 0;

TEST_F(Quantize, EveryMethodIsWithinHalfAPointOfFp32) {
  ASSERT_GT(fp32_accuracy_, 0.95);
  for (const Words& flags : {Words{},
                             {"--scheme", "asymmetric", "--granularity", "layer"},
                             {"--calibration", "percentile:99.99", "--samples", "100"},
                             {"--first-layer", "fp32", "--last-layer", "fp32"},
                             {"--calibration", "absmax", "--fold-batch-norm", "off"}}) {
    Run(Command(flags));
    const json summary = Evaluate();
    EXPECT_NEAR(summary["accuracy"], fp32_accuracy_, 0.005) << testing::PrintToString(flags);
    EXPECT_EQ(summary["model"], "lenet");
    Run({"export", "--quantized", Path("model.q8"), "--onnx", Path("model.onnx")});
    // A byte a weight but in layers that keep FP32: 500 x 10 of 430,500, and 25 x 20.
    EXPECT_LT(ReadFile(Path("model.onnx")).size(), 480'000u);
    EXPECT_THAT(ReadFile(Path("model.onnx")), HasSubstr("QuantizeLinear"));
  }
  // 430,500 weights of a byte, and what comes with them.
  EXPECT_LT(ReadFile(Path("model.q8")).size(), 450'000u);
}

// LeNet's convolutions are 5x5.
TEST_F(Quantize, ANetworkThatWinogradCannotComputeSaysSo) {
  for (const char* winograd : {"int4_int6", "auto"}) {
    Process central(With({"runnel-central"}, Command({"--winograd", winograd})));
    EXPECT_EQ(central.Wait(), 0) << central.err();
    EXPECT_THAT(central.out(), HasSubstr("changes nothing: no 3x3 convolution of stride 1"));
  }
}

TEST_F(Quantize, ReportsEachLayer) {
  Run(Command({"--report", Path("made.json")}));
  Run({"eval", "--quantized", Path("model.q8"), "--profile", Path("run.json")});
  Run({"eval", "--quantized", Path("model.q8"), "--profile", Path("run.svg")});
  EXPECT_THAT(ReadFile(Path("run.svg")), HasSubstr("<svg"));
  for (const char* name : {"made.json", "run.json"}) {
    const json report = json::parse(ReadFile(Path(name)));
    EXPECT_GT(report["peak_gops"], 0) << name;
    ASSERT_EQ(report["layers"].size(), 8u) << name;
    const json& conv = report["layers"][3];
    EXPECT_EQ(conv["shape"], "20-12-50");
    EXPECT_GT(conv["ms"], 0);
    EXPECT_GT(conv["fp32_ms"], 0);
    EXPECT_EQ(report["layers"][2]["fp32_ms"], nullptr);
    EXPECT_GT(conv["gops"], 0);
    // 8 bits: about 6 dB each, less what the layers before have lost.
    EXPECT_GT(conv["snr_db"], 25);
    EXPECT_LT(conv["snr_db"], 45);
    EXPECT_GT(conv["cosine"], 0.995);
  }
}

TEST_F(Quantize, TheSameFlagsGiveTheSameFile) {
  Run(Command());
  const std::string first = ReadFile(Path("model.q8"));
  Run(Command());
  EXPECT_EQ(ReadFile(Path("model.q8")), first);
  Run(Command({"--samples", "7"}));
  EXPECT_NE(ReadFile(Path("model.q8")), first);
}

TEST_F(Quantize, WhatDoesNotFitIsRefusedInOneLine) {
  ExpectRefused(Command({"--scheme", "odd"}), "--scheme");
  ExpectRefused(Command({"--granularity", "row"}), "--granularity");
  ExpectRefused(Command({"--winograd", "on"}), "--winograd");
  ExpectRefused(Command({"--first-layer", "int4"}), "--first-layer");
  ExpectRefused(Command({"--samples", "0"}), "--samples");
  ExpectRefused(Command({"--calibration", "entropy"}), "kl, kl:migacz, absmax, percentile:P");
  ExpectRefused(Command({"--scheme", "asymmetric", "--winograd", "int4_int6"}),
                "take scheme symmetric");
  ExpectRefused({"quantize", "--checkpoint-dir", Path("none"), "--out", Path("x")}, Path("none"));
  ExpectRefused({"quantize", "--checkpoint-dir", Path("trained"), "--out", Path("none/x")},
                Path("none/x"));
  ExpectRefused(Command({"--report", Path("r.txt")}), "ends in .md, .json or .svg");
  ExpectRefused(Command({"--report", Path("none/r.svg")}), "--report: ");
  ExpectRefused({"eval", "--quantized", Path("model.q8"), "--profile", Path("none/r.svg")},
                Path("none/r.svg"));
  ExpectRefused({"eval", "--checkpoint-dir", Path("trained"), "--profile", Path("r.svg")},
                "give --quantized too");
  const Words exported = {"export", "--quantized", Path("model.q8")};
  ExpectRefused(With(exported, {"--npz", Path("x")}), "--npz needs --checkpoint-dir");
  ExpectRefused(With(exported, {"--onnx", Path("x"), "--checkpoint-dir", Path("trained")}),
                "either --checkpoint-dir or --quantized");
  ExpectRefused(With(exported, {"--onnx", Path("x"), "--batch", "0"}), "--batch");
  ExpectRefused({"eval"}, "--checkpoint-dir or --quantized");
  ExpectRefused({"eval", "--quantized", Path("none")}, Path("none"));
}

TEST_F(Quantize, ADamagedFileIsRefused) {
  Run(Command());
  const std::string whole = ReadFile(Path("model.q8"));
  const auto expect = [](const std::string& content, const std::string& text) {
    std::ofstream(Path("damaged.q8"), std::ios::binary) << content;
    ExpectRefused({"eval", "--quantized", Path("damaged.q8")}, text);
    ExpectRefused({"export", "--quantized", Path("damaged.q8"), "--onnx", Path("none.onnx")}, text);
  };
  expect("", "is no quantised model");
  expect("RNLCKPT\n" + whole.substr(8), "is no quantised model");
  expect(whole.substr(0, 30), "truncated in its header");
  expect(whole.substr(0, whole.size() - 1), "is truncated");
  std::string changed = whole;
  changed[whole.size() / 2] ^= 1;
  expect(changed, "is damaged");
  changed = whole;
  ++changed[8];
  expect(changed, "format version 2");
}

TEST_F(Quantize, AModelOfIntegersIsRefused) {
  RunCentral({"train", "--model", "lenet", "--recipe", "niti", "--dataset", "synthetic_digits",
              "--local-workers", "0", "--max-batches", "2", "--eval-every", "0", "--checkpoint-dir",
              Path("niti")});
  ExpectRefused({"quantize", "--checkpoint-dir", Path("niti"), "--out", Path("x")},
                "quantize takes models of recipe fp32");
}

}  // namespace
}  // namespace runnel::quantize_test
