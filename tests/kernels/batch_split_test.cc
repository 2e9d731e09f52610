// Batch splitting: the paper's Table 4, slices in programs, and whole trainings with them: the
// bytes of no split, or under `shifted` those of ref.

#include "kernels/ir/passes/batch_split.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "proto/base/status_macros.h"
#include "tests/kernels/integer_backends.h"
#include "tests/kernels/integer_pipeline.h"
#include "tests/kernels/random_model.h"

namespace runnel::batch_split_test {
namespace {

using testing::HasSubstr;

TEST(FastestSlice, DecidesAsTheSheetDoesOverTable4) {
  struct Row {
    std::vector<double> ms;       // for 2, 4, 8, 16, 32, 64 samples
    std::vector<int64_t> slices;  // expected, likewise
  };
  const Row rows[] = {{{.63, .63, .85, 1.03, 1.27, 1.84}, {2, 4, 8, 16, 32, 64}},        // 8x8
                      {{.84, .89, 4.23, 3.98, 4.64, 12.24}, {2, 4, 4, 4, 32, 32}},       // 16x16
                      {{1.69, 2.50, 59.11, 62.35, 68.13, 152.89}, {2, 4, 4, 4, 4, 4}}};  // 32x32
  for (const Row& row : rows) {
    std::vector<BatchSeconds> profile;
    for (size_t i = 0; i < row.ms.size(); ++i)
      profile.push_back({int64_t{2} << i, row.ms[i] * 1e-3});
    for (size_t i = 0; i < row.slices.size(); ++i)
      EXPECT_EQ(FastestSlice(int64_t{2} << i, profile), row.slices[i]) << i;
  }
}

TEST(FastestSlice, TakesDivisorsOnlyAndOfEqualOnesTheLargest) {
  EXPECT_EQ(FastestSlice(12, {{5, 0.001}, {24, 0.001}, {4, 1}, {12, 3}}), 12);
  EXPECT_EQ(FastestSlice(12, {{6, 1}, {3, 0.5}, {4, 0.75}}), 6);
  EXPECT_EQ(FastestSlice(7, {{1, 1}, {7, 7.5}}), 1);
  EXPECT_EQ(FastestSlice(7, {}), 7);
  EXPECT_EQ(FastestSlice(7, {{2, 1}}), 7);
}

TEST(ParseBatchSplit, TakesWhatTheFlagSays) {
  EXPECT_EQ(*ParseBatchSplit("off"), BatchSplitRule());
  EXPECT_EQ(ParseBatchSplit("auto")->mode, BatchSplitMode::kAuto);
  EXPECT_EQ(*ParseBatchSplit("8"), (BatchSplitRule{BatchSplitMode::kSummed, 8}));
  EXPECT_EQ(*ParseBatchSplit("shifted:4"), (BatchSplitRule{BatchSplitMode::kShifted, 4}));
  for (const char* text :
       {"", "on", "0", "-2", "shifted", "shifted:", "shifted:0", "8,4", "9999999"})
    EXPECT_THAT(std::string(ParseBatchSplit(text).status().message()),
                HasSubstr("off, auto, N or shifted:N"))
        << text;
}

ModelSpec SmallNet() {
  const OpSpec depthwise = ConvOp(20, {3, 1, 1}, 0, 20);
  return ModelOf({3, 12, 12}, 10,
                 {{ConvOp(20, {3, 1, 1}), ReluOp(), MaxPoolOp({2, 2}, 2)},
                  {depthwise, ReluOp()},
                  {ConvOp(33, {3, 1, 0}), ReluOp()},
                  {OpOf(OpKind::kFlatten, {0}), LinearOp(40, {1}), OpOf(OpKind::kRelu, {2})},
                  {LinearOp(10)}});
}

struct Training {
  BatchSplitRule split;
  RescaleRule rescale = {};
  std::vector<int> cuts = {};
  int micro_batches = 1;
  std::string recipe = "niti";
};

// The weights after a few steps of micro-batches of ten.
absl::StatusOr<std::vector<Scaled>> Train(const Training& t, const std::string& backend_name) {
  constexpr int64_t kBatch = 10;
  auto backend = MakeIntegerBackend(backend_name);
  if (!backend.ok()) return backend.status();
  const ModelSpec model = SmallNet();
  auto net = IntegerPipeline::Make(model, t.cuts, kBatch, backend->get(), **FindRecipe(t.recipe),
                                   t.micro_batches > 1, t.rescale, t.split);
  if (!net.ok()) return net.status();
  SetGoldenWeights(*net, 500);
  StepContext context;
  context.gradient_bits = {3, 4};
  const auto samples = [count = kBatch * model.input.elements()](int64_t sequence) {
    return RandomValues(4, sequence, count);
  };
  int64_t sequence = 0;
  for (int step = 0; step < 3; ++step) {
    RUNNEL_RETURN_IF_ERROR(
        TrainStep(*net, t.micro_batches, kBatch, model.classes, samples, context, sequence));
  }
  std::vector<Scaled> weights;
  for (size_t i = 0; i < net->weight_count(); ++i) weights.push_back(net->Weight(i));
  return weights;
}

constexpr BatchSplitRule Summed(int64_t n) { return {BatchSplitMode::kSummed, n}; }
constexpr BatchSplitRule Shifted(int64_t n) { return {BatchSplitMode::kShifted, n}; }

class BatchSplitBytesTest : public testing::TestWithParam<std::string> {
 protected:
  void ExpectWeights(const Training& ours, const absl::StatusOr<std::vector<Scaled>>& theirs) {
    const auto weights = Train(ours, GetParam());
    ASSERT_TRUE(weights.ok() && theirs.ok()) << weights.status() << theirs.status();
    EXPECT_TRUE(*weights == *theirs) << "slices of " << ours.split.samples;
  }
};

TEST_P(BatchSplitBytesTest, AddedSlicesGiveTheBytesOfTheWhole) {
  static const auto* const kWhole = new auto(Train({}, "ref/1"));
  static const auto* const kKept =
      new auto(Train({.rescale = {RescaleMode::kAdaptive, 1, 4}}, "ref/1"));
  // Emulated devices compute the whole.
  const bool device = GetParam() == "hexagon/1" || GetParam() == "opencl/1";
  for (int64_t n : device ? std::vector<int64_t>{3} : std::vector<int64_t>{1, 3, 5, 10, 64})
    ExpectWeights({.split = Summed(n)}, *kWhole);
  if (device) return;
  ExpectWeights({.split = Summed(4), .cuts = {1, 3}}, *kWhole);
  auto backend = MakeIntegerBackend(GetParam());
  ASSERT_TRUE(backend.ok());
  if (!(*backend)->traits().rescales_in_products) return;
  ExpectWeights({.split = Summed(4), .rescale = {RescaleMode::kSpeculate}}, *kWhole);
  ExpectWeights({.split = Summed(3), .rescale = {RescaleMode::kAdaptive, 1, 4}}, *kKept);
}

TEST_P(BatchSplitBytesTest, ShiftedSlicesGiveTheBytesOfRef) {
  auto backend = MakeIntegerBackend(GetParam());
  ASSERT_TRUE(backend.ok());
  if (!(*backend)->traits().shifts_slices) {
    EXPECT_NE(GetParam().find("opencl"), std::string::npos) << "only opencl has none";
    return;
  }
  const Training trainings[] = {{.split = Shifted(4)},
                                {.split = Shifted(1), .recipe = "niti:niti2021"},
                                {.split = Shifted(5), .cuts = {1, 3}, .micro_batches = 2}};
  static const auto* const kOfRef = [&] {
    auto* results = new std::vector<absl::StatusOr<std::vector<Scaled>>>;
    for (const Training& training : trainings) results->push_back(Train(training, "ref/1"));
    return results;
  }();
  for (size_t i = 0; i < kOfRef->size(); ++i) ExpectWeights(trainings[i], (*kOfRef)[i]);
}

std::vector<std::string> Names() {
  std::vector<std::string> names = IntegerBackendNames();
  names.push_back("cpu,ref@alternate/1");
  return names;
}
INSTANTIATE_TEST_SUITE_P(Backends, BatchSplitBytesTest, testing::ValuesIn(Names()),
                         [](const auto& info) { return TestNameOf(info.param); });

TEST(BatchSplit, ShiftedSlicesAreATrainingOfTheirOwn) {
  const auto whole = Train({}, "cpu:portable/1");
  const auto fours = Train({.split = Shifted(4)}, "cpu:portable/1");
  const auto fives = Train({.split = Shifted(5)}, "cpu:portable/1");
  const auto at_once = Train({.split = Shifted(10)}, "cpu:portable/1");
  const auto cut = Train({.split = Shifted(4), .cuts = {1, 2, 3, 4}}, "cpu:portable/1");
  ASSERT_TRUE(whole.ok() && fours.ok() && fives.ok() && at_once.ok() && cut.ok());
  EXPECT_FALSE(*fours == *whole);
  EXPECT_FALSE(*fours == *fives);
  EXPECT_TRUE(*at_once == *whole);  // one slice is none
  EXPECT_TRUE(*cut == *fours);
}

TEST(BatchSplit, ProgramsListTheirSlices) {
  CompileOptions options = {.max_batch = 10, .batch_split = Shifted(4)};
  const ModelSpec model = SmallNet();
  const Recipe& niti = **FindRecipe("niti");
  auto program = CompileStage(model, 0, model.layer_count() - 1, 10, niti, options);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(ToString(*program), HasSubstr(", shifted slices of 4"));
  EXPECT_THAT(ToString(*program), HasSubstr(", slices of 4"));
  options.batch_split = Summed(16);
  program = CompileStage(model, 0, model.layer_count() - 1, 10, niti, options);
  ASSERT_TRUE(program.ok());
  EXPECT_THAT(ToString(*program), testing::Not(HasSubstr("slices")));
}

// A clock that goes on by what the backend of the test says.
class TestClock final : public Clock {
 public:
  int64_t NowNanos() const override { return nanos; }
  int64_t nanos = 0;
};

// Computes nothing; slices of two samples are the fastest, a whole weight-gradient is.
class TimedBackend final : public Backend {
 public:
  explicit TimedBackend(TestClock* clock) : clock_(clock) {}
  BackendTraits traits() const override { return {.name = "timed", .numerics_class = "timed"}; }
  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    return std::make_unique<Timed>(program, clock_);
  }

 private:
  class Timed final : public Executable {
   public:
    Timed(const Program& program, TestClock* clock) : program_(program), clock_(clock) {}
    absl::Status Run(Part part, const StepContext&, const Bindings&) override {
      const Instruction& one = program_.part(part)[0];
      const int64_t slice = one.split.SliceOf(program_.batch);
      const bool fast =
          slice == (TraitsOf(one.code).is_integer_weight_gradient() ? program_.batch : 2);
      clock_->nanos += fast ? 1'000'000 : 2'000'000;
      return absl::OkStatus();
    }
    const Program& program_;
    TestClock* clock_;
  };
  TestClock* clock_;
};

TEST(SplitByProfile, TakesTheFastestSlicesUntilItsTimeIsOver) {
  TestClock clock;
  TimedBackend backend(&clock);
  const ModelSpec model = SmallNet();
  auto program = CompileStage(model, 0, model.layer_count() - 1, 10, **FindRecipe("niti"));
  ASSERT_TRUE(program.ok());
  const auto profile = SplitByProfile(backend, clock, 3, *program);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->products, 14);
  EXPECT_EQ(profile->split, 9);
  EXPECT_EQ(profile->untimed, 0);
  for (const Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient}) {
    for (const Instruction& one : program->part(part)) {
      const bool splits = TraitsOf(one.code).is_integer_product() &&
                          !TraitsOf(one.code).is_integer_weight_gradient();
      EXPECT_EQ(one.split.samples, splits ? 2 : 0) << std::string(Name(one.code));
    }
  }
  program = CompileStage(model, 0, model.layer_count() - 1, 10, **FindRecipe("niti"));
  ASSERT_TRUE(program.ok());
  const auto rushed = SplitByProfile(backend, clock, 0.02, *program);
  ASSERT_TRUE(rushed.ok());
  EXPECT_EQ(rushed->split, 2);
  EXPECT_EQ(rushed->untimed, 12);
  EXPECT_THAT(ToString(*rushed), HasSubstr("2 of 14 products in slices"));
  EXPECT_THAT(ToString(*rushed), HasSubstr("did not suffice for 12"));
}

}  // namespace
}  // namespace runnel::batch_split_test
