// The tuner of the OpenCL backend: it chooses what computes right, and nothing of its choice can be
// seen in a result. Skipped where there is no device. Under PoCL: correctness only.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/opencl/device/tile_families.h"
#include "kernels/backends/opencl/opencl_backend.h"
#include "kernels/backends/opencl/product/lone_product.h"
#include "kernels/backends/opencl/product/product_tuner.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "tests/kernels/op_harness.h"
#include "tests/kernels/opencl/opencl_faults.h"

namespace runnel::opencl::opencl_tuner_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// More than a search under PoCL takes; no test waits for it.
constexpr double kEnough = 300;

// A convolution, if wanted, and a linear layer.
Program SmallProgram(const char* recipe, bool has_conv = false, bool stores_halves = false) {
  OpSpec conv = {.kind = OpKind::kConv, .inputs = {0}, .out_channels = 11};
  conv.kernel = {3, 3};
  conv.padding = {1, 1};
  const OpSpec relu = {.kind = OpKind::kRelu, .inputs = {1}};
  const OpSpec flatten = {.kind = OpKind::kFlatten, .inputs = {0}};
  const OpSpec linear = {.kind = OpKind::kLinear, .inputs = {1}, .out_channels = 10};
  ModelSpec model;
  model.name = "small";
  model.input = {5, 9, 9};
  model.classes = 10;
  if (has_conv) model.layers.push_back({"convolution", {conv, relu}});
  model.layers.push_back({"product", {flatten, linear}});
  const CompileOptions options = {.max_batch = 16,
                                  .stash = stores_halves ? DType::kFloat16 : DType::kFloat32};
  return CompileStage(model, 0, model.layer_count() - 1, 16, **FindRecipe(recipe), options).value();
}

class OpenClTunerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto backend = MakeBackendWith({});
    if (!backend.ok()) GTEST_SKIP() << "no OpenCL here: " << backend.status().message();
    backend_ = *std::move(backend);
    // Large tiles take PoCL minutes to build.
    DeviceInfo device = (*Session::Open({}))->device();
    device.max_work_group = 64;
    device.local_bytes = 2200;
    has_images_ = device.image_texels > 0;
    tuner_ = std::make_unique<ProductTuner>(Options(), device,
                                            std::make_shared<DeviceBudget>(device, 0));
  }
  void TearDown() override { SpoilBuilds("", 0); }

  std::vector<TuningChoice> Search(const Program& program) {
    const auto ref = *MakeRefBackend(1);
    tuner_->BeginSearch(kEnough, /*anew=*/true, ref.get());
    tuner_->Search(program);
    tuner_->EndSearch();
    return tuner_->choices();
  }

  // So many tiles that read no image, and so many that do.
  int Tiles(const TuningChoice& choice, int buffers, int images) const {
    const bool reads_weight = !absl::StrContains(choice.shape_class, "weight_gradient");
    return buffers + (has_images_ && reads_weight ? images : 0);
  }

  bool has_images_ = false;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<ProductTuner> tuner_;
};

TEST_F(OpenClTunerTest, SearchesEachKindOfProduct) {
  const Program program = SmallProgram("niti", /*has_conv=*/true);
  EXPECT_TRUE(backend_->Prepare(program).ok());
  EXPECT_THAT(backend_->tuner()->choices(), IsEmpty()) << "nothing is tuned without a search";
  const std::vector<TuningChoice> choices = Search(program);
  // Of two layers, forward and weight-gradient; of the second the input-gradient.
  ASSERT_EQ(choices.size(), 5u);
  for (const TuningChoice& choice : choices) {
    EXPECT_EQ(choice.tried, Tiles(choice, 7, 2))
        << choice.shape_class << ": others compute as the rule's does";
    EXPECT_EQ(choice.uses, 1);
    EXPECT_LE(choice.seconds, choice.rule_seconds);
    EXPECT_GT(choice.seconds, 0);
    EXPECT_TRUE(ParseTile(choice.kernel).has_value()) << choice.kernel;
  }
  EXPECT_THAT(choices[0].shape_class, HasSubstr("int8 product_forward point rows 2^4 columns 2^4"));
}

// Each reading of it takes a tenth of a second.
class SlowClock final : public Clock {
 public:
  int64_t NowNanos() const override { return nanos_ += 100'000'000; }

 private:
  mutable int64_t nanos_ = 0;
};

// Where builds take all of the time, a search would end with the rule's tile of the first class.
TEST_F(OpenClTunerTest, EachClassIsTriedWithEightTilesWhateverTheTime) {
  DeviceInfo device = (*Session::Open({}))->device();
  device.max_work_group = 64;
  device.local_bytes = 2200;
  tuner_ = std::make_unique<ProductTuner>(
      Options(), device, std::make_shared<DeviceBudget>(device, 0), std::make_shared<SlowClock>());
  const auto ref = *MakeRefBackend(1);
  tuner_->BeginSearch(/*seconds=*/1, /*anew=*/true, ref.get());
  tuner_->Search(SmallProgram("niti"));
  const std::vector<TuningChoice> choices = tuner_->choices();
  ASSERT_EQ(choices.size(), 2u);
  for (const TuningChoice& choice : choices)
    EXPECT_EQ(choice.tried, std::min(ProductTuner::kLeastTiles, Tiles(choice, 7, 2)));
}

TEST(TileFamiliesTest, ASearchBeginsWithTilesOfTheDevicesFamily) {
  DeviceInfo device;
  device.platform_name = "ARM Platform";
  device.name = "Mali-G76";
  device.type = CL_DEVICE_TYPE_GPU;
  EXPECT_EQ(ToText(TilesInOrder(device, 0).front()), "4x4 by 4x4, depth 8, vector 4");
  EXPECT_NE(ToText(TilesInOrder(device, 32).front()), "4x4 by 4x4, depth 8, vector 4")
      << "16 work-items leave half of a warp empty";
  EXPECT_EQ(ToText(TilesInOrder(device, 32).back()), "4x4 by 4x4, depth 8, vector 4");
  device.name = "Some other GPU";
  device.platform_name = "Unknown";
  EXPECT_EQ(TilesInOrder(device, 0), std::vector<Tile>(Tiles().begin(), Tiles().end()));
  // Each family's are rows of the table, and none is lost.
  for (const char* name :
       {"Mali", "Adreno(TM) 640", "PowerVR", "NVIDIA", "AMD", "Radeon", "Intel"}) {
    device.name = name;
    std::vector<Tile> tiles = TilesInOrder(device, 0), all(Tiles().begin(), Tiles().end());
    EXPECT_NE(tiles.front(), all.front()) << name;
    std::sort(tiles.begin(), tiles.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(tiles, all) << name;
  }
  device.type = CL_DEVICE_TYPE_CPU;
  EXPECT_EQ(TilesInOrder(device, 0).front(), Tiles().front()) << "Intel(R) processor under PoCL";
}

TEST_F(OpenClTunerTest, FloatsAreSearchedWithinTheBoundOfTheirRounding) {
  const std::vector<TuningChoice> choices = Search(SmallProgram("fp32"));
  ASSERT_EQ(choices.size(), 2u);
  for (const TuningChoice& choice : choices) {
    EXPECT_THAT(choice.shape_class, HasSubstr("fp32 product_"));
    EXPECT_EQ(choice.tried, Tiles(choice, 7, 2)) << choice.shape_class;
  }
}

// So that ref can tell what is right.
TEST_F(OpenClTunerTest, ProductsOfHalvesAreTriedInFp32) {
  const Program program = SmallProgram("fp32", /*has_conv=*/true, /*stores_halves=*/true);
  int halves = 0;
  for (const auto& part : program.parts) {
    for (const Instruction& instruction : part) {
      if (!IsProduct(instruction.code)) continue;
      for (BufferIndex input : instruction.inputs)
        halves += program.buffers[static_cast<size_t>(input)].dtype == DType::kFloat16 ? 1 : 0;
      for (const LoneProduct& lone :
           {TakeProduct(program, instruction, 1), TakeSmallProduct(program, instruction)}) {
        for (const Buffer& buffer : lone.program.buffers)
          EXPECT_TRUE(buffer.dtype != DType::kFloat16 && !buffer.is_rounded())
              << Name(instruction.code);
      }
    }
  }
  EXPECT_EQ(halves, 2) << "of the linear layer: forward and weight-gradient";
}

// Kernels that do nothing are the fastest of all.
TEST_F(OpenClTunerTest, WhatComputesWrongIsNotChosenHoweverFast) {
  SpoilBuilds("-DVECTOR=4", CL_SUCCESS);
  for (const TuningChoice& choice : Search(SmallProgram("niti"))) {
    EXPECT_THAT(choice.kernel, Not(HasSubstr("vector 4"))) << choice.shape_class;
    EXPECT_EQ(choice.tried, Tiles(choice, 5, 1));
  }
}

// The rule's own one computes wrong: its class stays untuned.
TEST_F(OpenClTunerTest, NothingIsComparedWithAWrongRule) {
  SpoilBuilds("-DTILE_ROWS=4 -DTILE_COLUMNS=4 -DSIDE_X=8 -DSIDE_Y=8 -DDEPTH=8 -DVECTOR=1", 0);
  EXPECT_THAT(Search(SmallProgram("niti")), IsEmpty());
}

TEST_F(OpenClTunerTest, ATileThatLosesTheDeviceCostsOnlyItself) {
  SpoilBuilds("-DVECTOR=2", CL_OUT_OF_RESOURCES);
  const Program program = SmallProgram("niti");
  const std::vector<TuningChoice> choices = Search(program);
  ASSERT_EQ(choices.size(), 2u);
  for (const TuningChoice& choice : choices) {
    EXPECT_THAT(choice.kernel, Not(HasSubstr("vector 2")));
    EXPECT_EQ(choice.tried, Tiles(choice, 6, 2)) << "those behind it are tried";
  }
  EXPECT_TRUE(backend_->Prepare(program).ok()) << "stages keep their device";
}

// A process that ended over a tile: the next one's search goes past it.
TEST_F(OpenClTunerTest, ATileThatHangsIsNotTriedByTheNextStart) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string dir = testing::TempDir() + "/runnel_hung_tiles";
  std::filesystem::remove_all(dir);
  DeviceInfo device = (*Session::Open({}))->device();
  device.max_work_group = 64;
  device.local_bytes = 2200;
  const auto search = [&](double stall_seconds) {
    const Options options = {.stall_seconds = stall_seconds, .programs = dir};
    ProductTuner tuner(options, device, std::make_shared<DeviceBudget>(device, 0));
    const auto ref = *MakeRefBackend(1);
    tuner.BeginSearch(kEnough, /*anew=*/true, ref.get());
    tuner.Search(SmallProgram("niti"));
    return tuner.choices();
  };
  const auto hang = [&] {
    SpoilBuilds("-DVECTOR=2", kKernelHangs);
    search(/*stall_seconds=*/15);  // longer than any other tile takes on a busy machine
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(kDriverHangs), "has not answered for 15 s");
  const std::vector<TuningChoice> choices = search(/*stall_seconds=*/0);
  ASSERT_EQ(choices.size(), 2u);
  for (const TuningChoice& choice : choices) {
    EXPECT_THAT(choice.kernel, Not(HasSubstr("vector 2")));
    EXPECT_EQ(choice.tried, Tiles(choice, 6, 2));
  }
  std::filesystem::remove_all(dir);
}

// The rule's own one: a smaller one is the first that is tried, and no program takes it, tuned or not.
TEST_F(OpenClTunerTest, ARulesTileThatHangsGivesWayToASmallerOne) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::string rule =
      "-DTILE_ROWS=4 -DTILE_COLUMNS=4 -DSIDE_X=8 -DSIDE_Y=8 -DDEPTH=8 -DVECTOR=1";
  const std::string dir = testing::TempDir() + "/runnel_hung_rule";
  std::filesystem::remove_all(dir);
  DeviceInfo device = (*Session::Open({}))->device();
  device.max_work_group = 64;
  device.local_bytes = 2200;
  const Program program = SmallProgram("niti");
  const auto tuner = [&](double stall_seconds) {
    return std::make_unique<ProductTuner>(Options{.stall_seconds = stall_seconds, .programs = dir},
                                          device, std::make_shared<DeviceBudget>(device, 0));
  };
  const auto search = [&](ProductTuner& by) {
    const auto ref = *MakeRefBackend(1);
    by.BeginSearch(kEnough, /*anew=*/true, ref.get());
    by.Search(program);
    return by.choices();
  };
  const auto hang = [&] {
    SpoilBuilds(rule, kKernelHangs);
    search(*tuner(/*stall_seconds=*/15));
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(kDriverHangs), "has not answered for 15 s");
  const std::unique_ptr<ProductTuner> next = tuner(/*stall_seconds=*/0);
  TuningChoice kept = {"int8 product_forward point rows 2^4 columns 2^4 depth 2^10",
                       "4x4 by 8x8, depth 8, vector 1", 1e-3, 2e-3, 7};
  EXPECT_EQ(next->Adopt({kept}, /*is_checked=*/true), 0) << "of a start before it hung";
  SpoilBuilds(rule, CL_OUT_OF_RESOURCES);  // who runs a kernel of the tile is told so
  const std::vector<TuningChoice> choices = search(*next);
  ASSERT_EQ(choices.size(), 2u);
  for (const TuningChoice& choice : choices) {
    EXPECT_NE(choice.kernel, kept.kernel);
    EXPECT_EQ(choice.tried, Tiles(choice, 6, 2));
  }
  Tensor x = ScaledTensor({16, 891}, DType::kInt8), weight = ScaledTensor({10, 891}, DType::kInt8);
  Tensor y = ScaledTensor({16, 10}, DType::kInt32);
  const OpSpec op = {.kind = OpKind::kLinear, .out_channels = 10};
  auto backend = MakeBackendWith({.programs = dir});
  const absl::Status run =
      RunOp(OpCode::kInt8LinearForward, op, {&x, &weight}, {&y}, {}, 0, 0, backend->get());
  EXPECT_TRUE(run.ok()) << run;
  std::filesystem::remove_all(dir);
}

TEST_F(OpenClTunerTest, WhatIsAdoptedIsLookedAtFirst) {
  Tuner& tuner = *backend_->tuner();
  const TuningChoice good = {"int8 product_forward point rows 2^4 columns 2^4 depth 2^10",
                             "8x4 by 8x8, depth 8, vector 4", 1e-3, 2e-3, 7};
  TuningChoice no_tile = good, no_class = good, no_time = good;
  no_tile.kernel = "3x3 by 8x8, depth 8, vector 4";
  no_class.shape_class = "*";
  no_time.seconds = std::nan("");
  EXPECT_EQ(tuner.Adopt({no_tile, no_class, no_time}, /*is_checked=*/true), 0);
  EXPECT_THAT(tuner.choices(), IsEmpty());
  EXPECT_EQ(tuner.Adopt({good}, /*is_checked=*/false), 1);
  EXPECT_THAT(tuner.choices(), IsEmpty()) << "of another driver: tried first, not believed";
  EXPECT_EQ(tuner.Adopt({good, good}, /*is_checked=*/true), 1);
  EXPECT_EQ(tuner.choices(), std::vector{good});
}

TEST_F(OpenClTunerTest, AChoiceIsWhatPreparedProgramsTake) {
  Tensor x = ScaledTensor({16, 891}, DType::kInt8), weight = ScaledTensor({10, 891}, DType::kInt8);
  for (Tensor* tensor : {&x, &weight}) {
    for (int64_t i = 0; i < tensor->shape.elements(); ++i)
      tensor->data<int8_t>()[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  }
  OpSpec op;
  op.kind = OpKind::kLinear;
  op.out_channels = 10;
  const auto product = [&] {
    Tensor y = ScaledTensor({16, 10}, DType::kInt32);
    EXPECT_TRUE(
        RunOp(OpCode::kInt8LinearForward, op, {&x, &weight}, {&y}, {}, 0, 0, backend_.get()).ok());
    return y.bytes;
  };
  const auto by_rule = product();
  backend_->tuner()->Adopt({{"int8 product_forward point rows 2^4 columns 2^4 depth 2^10",
                             "4x4 by 8x8, depth 8, vector 4", 1e-3, 2e-3, 7}},
                           /*is_checked=*/true);
  EXPECT_EQ(product(), by_rule);
  SpoilBuilds("-DVECTOR=4", CL_OUT_OF_RESOURCES);
  backend_ = *MakeBackendWith({});
  backend_->tuner()->Adopt({{"int8 product_forward point rows 2^4 columns 2^4 depth 2^10",
                             "4x4 by 8x8, depth 8, vector 4", 1e-3, 2e-3, 7}},
                           /*is_checked=*/true);
  Tensor y = ScaledTensor({16, 10}, DType::kInt32);
  EXPECT_FALSE(
      RunOp(OpCode::kInt8LinearForward, op, {&x, &weight}, {&y}, {}, 0, 0, backend_.get()).ok());
}

}  // namespace
}  // namespace runnel::opencl::opencl_tuner_test
