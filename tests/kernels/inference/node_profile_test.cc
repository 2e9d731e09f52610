#include "kernels/inference/node_profile.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/inference/quantizer.h"
#include "partition/zoo/zoo.h"
#include "proto/base/model/initial_state.h"
#include "tests/kernels/random_model.h"

namespace runnel::inference {
namespace {

struct Made {
  FoldedGraph real;
  Int8Graph graph;
  std::vector<float> samples;
};

Made Make(WinogradUse winograd) {
  const ModelSpec model = MakeModel("vgg11").value();
  Made made;
  made.real = FoldModel(model, InitialState(model, 1).value(), true).value();
  made.samples = RandomValues(1, 0, 2 * model.input.elements());
  QuantizeOptions options;
  options.calibration = ParseCalibration("absmax").value();
  options.winograd = winograd;
  Quantizer quantizer(made.real, options);
  quantizer.Observe(0, made.samples, 2);
  made.graph = quantizer.Finish().value();
  return made;
}

TEST(NodeProfile, FewerBitsAreFurtherFromFp32) {
  const Made fine = Make(WinogradUse::kOff), coarse = Make(WinogradUse::kInt4Int6);
  const cpu::Int8Kernels& kernels = cpu::BestInt8Kernels();
  const auto eight = CompareNodes(fine.real, fine.graph, kernels, fine.samples, 2);
  const auto four = CompareNodes(coarse.real, coarse.graph, kernels, coarse.samples, 2);
  ASSERT_EQ(eight.size(), fine.graph.nodes.size());
  // 127 codes for a range that is uniform or narrower.
  EXPECT_GT(eight[0].snr_db, 30);
  EXPECT_LT(eight[0].snr_db, 60);
  for (size_t i = 3; i < eight.size(); ++i) {
    EXPECT_LT(four[i].snr_db, eight[i].snr_db - 6) << i;
    EXPECT_LT(four[i].cosine, eight[i].cosine) << i;
  }
  EXPECT_GT(eight.back().cosine, 0.99);
}

TEST(NodeProfile, FactsAreTheGraphs) {
  const Made made = Make(WinogradUse::kInt4Int6);
  Int8Executor executor(made.graph, 1, cpu::BestInt8Kernels());
  const std::vector<NodeFacts> facts = DescribeNodes(made.graph, executor);
  EXPECT_EQ(facts[0].name, "input");
  EXPECT_EQ(facts[1].name, "conv 3x3");
  EXPECT_EQ(facts[1].shape, "3-32-64");
  EXPECT_EQ(facts[1].macs, 32 * 32 * 64 * 27);
  EXPECT_EQ(facts[1].kernel.substr(0, 7), "direct ");
  EXPECT_EQ(facts[3].kernel.substr(0, 9), "winograd ");
  EXPECT_EQ(facts.back().name, "linear");
  // Codes in and out, a byte a weight, 4 a bias, 8 a factor.
  EXPECT_EQ(facts[1].bytes, 3 * 1024 + 64 * 1024 + 27 * 64 + 64 * 12);
  const std::vector<double> seconds = TimeNodes(made.graph, executor, made.samples, 1, 3);
  ASSERT_EQ(seconds.size(), facts.size());
  for (double s : seconds) EXPECT_GE(s, 0);
  EXPECT_GT(MeasurePeak(cpu::BestInt8Kernels()), 0);
}

}  // namespace
}  // namespace runnel::inference
