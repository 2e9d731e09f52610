// Products of the codes of grids on the DSP: the bytes of ref, and of a training on the processor alone.
// Skipped where there is no emulator.

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/hexagon/code_sums.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "kernels/ir/arithmetic/code_grid.h"
#include "kernels/ir/recipe.h"
#include "tests/conformance/backend_cases.h"
#include "tests/conformance/case_bench.h"
#include "tests/kernels/grid_training.h"
#include "tests/kernels/integer_backends.h"
#include "tests/support/case_count.h"

namespace runnel::hexagon_codes_test {
namespace {

constexpr OpCode kProducts[] = {OpCode::kCodesForward, OpCode::kCodesInputGradient,
                                OpCode::kCodesWeightGradient};

void ExpectLikeRef(const Case& c, Backend* dsp, Backend* ref) {
  Bench ours(c), oracle(c);
  const absl::Status status = ours.Run(dsp);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_TRUE(oracle.Run(ref).ok());
  ExpectSameBytes(c, ours, oracle);
}

// On the DSP, on one with memory for pieces alone, and on a device whose caches do not see each other.
class DspCodes : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto command = hexagon::FindEmulator();
    if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
    auto backend = MakeIntegerBackend(GetParam());
    if (std::string(GetParam()) == kDeviceDsp && !backend.ok())
      GTEST_SKIP() << "no double here: " << backend.status().message();
    ASSERT_TRUE(backend.ok()) << backend.status();
    dsp_ = *std::move(backend);
    ref_ = *MakeBackend("ref", 1);
  }

  std::unique_ptr<Backend> dsp_, ref_;
};

// Sums of 64 bits are ref's. Odd channels, padding, strides, groups and gradients of 2 to 16 bits are
// among the shapes.
TEST_P(DspCodes, ProductsHaveTheBytesOfRef) {
  const uint64_t cases = CaseCount(GetParam() == std::string("hexagon/1") ? 50 : 15);
  for (const OpCode code : kProducts) {
    uint64_t computed = 0;
    for (uint64_t seed = 1; seed <= cases; ++seed) {
      const Case c = *MakeCase(code, seed);
      SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", c.ToString()));
      if (c.attributes.kind == OpKind::kConv && c.attributes.is_dilated()) {
        EXPECT_TRUE(absl::IsUnimplemented(Bench(c).Run(dsp_.get())));
        continue;
      }
      ASSERT_NO_FATAL_FAILURE(ExpectLikeRef(c, dsp_.get(), ref_.get()));
      ++computed;
    }
    EXPECT_GT(2 * computed, cases) << Name(code);
  }
}

CaseOperand Operand(Storage storage, DType dtype, const Shape& shape) {
  return {storage, dtype, shape,
          std::vector<std::byte>(static_cast<size_t>(shape.elements() * SizeOf(dtype)))};
}

CaseOperand Grid(int bits) {
  CaseOperand grid = Operand(Storage::kScratch, DType::kFloat32, {CodeGridFloats(1)});
  const float values[] = {static_cast<float>(bits), 0.25f, -1.5f};
  std::memcpy(grid.bytes.data(), values, sizeof(values));
  return grid;
}

// More products of -128 * -128 than 32 bits hold.
TEST(DspCodeSums, OfWeightGradientsAreWide) {
  const auto command = hexagon::FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  Case c;
  c.code = OpCode::kCodesWeightGradient;
  c.attributes = {.kind = OpKind::kConv, .inputs = {0}, .out_channels = 1, .kernel = {1, 1}};
  const Shape plane = {1, 1, 364, 365};
  for (int i = 0; i < 2; ++i) {
    c.inputs.push_back(Operand(Storage::kScratch, DType::kInt8, plane));
    std::memset(c.inputs.back().bytes.data(), -128, c.inputs.back().bytes.size());
  }
  c.inputs.push_back(Grid(8));
  c.inputs.push_back(Grid(8));
  c.outputs.push_back(Operand(Storage::kGradients, DType::kFloat32, {1, 1}));
  c.outputs.back().written = true;
  ExpectLikeRef(c, MakeIntegerBackend("hexagon/1")->get(), MakeIntegerBackend("ref/1")->get());
}

TEST_P(DspCodes, FloatsAreNotItsOwn) {
  const Case c = *MakeCase(OpCode::kAffineWeightCodes, 1);
  const absl::Status status = Bench(c).Run(dsp_.get());
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("affine_weight_codes"));
}

INSTANTIATE_TEST_SUITE_P(Dsps, DspCodes, testing::Values("hexagon/1", kSmallDsp, kDeviceDsp),
                         [](const auto& info) { return TestNameOf(info.param); });

// Packets of the operations for one product of codes, of c4 of VGG-11: those that correct it, as a
// share of its products.
TEST(DspCodeCounts, CorrectionsCostLessThanAFifthOfTheProducts) {
  auto command = hexagon::FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  auto session = hexagon::OpenEmulatedSession({.command = *std::move(command)});
  ASSERT_TRUE(session.ok()) << session.status();
  hexagon::SharedMemory& memory = *(*session)->memory();
  const host::Geometry geometry = {
      .x = {16, 256, 8, 8}, .y = {16, 256, 8, 8}, .window = {3, 3, 1, 1, 1, 1}};
  const std::unique_ptr<Memory> area = *memory.Allocate(32 << 20);
  const uint32_t at = memory.OffsetOf(area->address());
  for (const OpCode code : kProducts) {
    const hexagon::CodeSums sums = hexagon::SumsOfCodes(
        code, false, geometry, {at, 0, at + (2 << 20), at + (4 << 20), at + (8 << 20)});
    ASSERT_LE(sums.ones_bytes, 4 << 20);
    ASSERT_LE(sums.sums_bytes, 24 << 20);
    ASSERT_TRUE((*session)->Submit(sums.ops).ok());
    ASSERT_TRUE((*session)->Wait().ok());
    const auto counts = (*session)->counts();
    ASSERT_EQ(counts.size(), 3u);
    const double share = 1.0 * (counts[1].packets + counts[2].packets) / counts[0].packets;
    std::printf("%s: %u packets for products, %u and %u for sums of either codes\n",
                std::string(Name(code)).c_str(), counts[0].packets, counts[1].packets,
                counts[2].packets);
    EXPECT_LT(share, 0.2) << Name(code);
  }
}

// All products on the DSP, all else on the processor.
constexpr char kProductsOnDsp[] =
    "cpu,hexagon@codes_forward=hexagon+codes_input_gradient=hexagon+codes_weight_gradient=hexagon";

ModelSpec Small() {
  const auto conv = [](int64_t channels, int64_t kernel, int64_t stride, int64_t groups) {
    return OpSpec{.kind = OpKind::kConv,
                  .inputs = {0},
                  .out_channels = channels,
                  .kernel = {kernel, kernel},
                  .stride = {stride, stride},
                  .padding = {kernel / 2, kernel / 2},
                  .groups = groups};
  };
  const auto op = [](OpKind kind) { return OpSpec{.kind = kind, .inputs = {0}}; };
  ModelSpec model{"small", {3, 11, 11}, 4, {}};
  model.layers = {{"a", {conv(6, 3, 1, 1)}},
                  {"b", {op(OpKind::kBatchNorm)}},
                  {"c", {op(OpKind::kRelu)}},
                  {"d", {conv(6, 3, 2, 6)}},
                  {"e", {conv(5, 1, 1, 1)}},
                  {"f", {op(OpKind::kRelu)}},
                  {"g", {op(OpKind::kFlatten)}},
                  {"h", {{.kind = OpKind::kLinear, .inputs = {0}, .out_channels = 4}}}};
  return model;
}

TEST(DspCodeTraining, HasTheWeightsOfTheProcessor) {
  const auto command = hexagon::FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  for (const char* recipe : {"sbm:8,8,8", "sbm:8,8,16", "sbm_range:8,8,8", "ui8", "octo"}) {
    Training training = {.model = Small(), .recipe = recipe};
    const Trained on_cpu = TrainOnGrids(training);
    training.backend = kProductsOnDsp;
    const Trained mixed = TrainOnGrids(training);
    EXPECT_EQ(mixed.parameters, on_cpu.parameters) << recipe;
    EXPECT_EQ(mixed.losses, on_cpu.losses) << recipe;
  }
}

// Levels of a dial widen and narrow gradients; micro-batches add up.
TEST(DspCodeTraining, LevelsAndMicroBatchesToo) {
  const auto command = hexagon::FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  Training training = {
      .model = Small(), .recipe = "sbm:8,8,8", .levels = {{8, 12}, {4, 6}}, .micro_batches = 2};
  const Trained on_cpu = TrainOnGrids(training);
  training.backend = kProductsOnDsp;
  EXPECT_EQ(TrainOnGrids(training).parameters, on_cpu.parameters);
}

// What runs where: each product on the DSP, nothing else.
TEST(DspCodeTraining, TheDspHasTheProductsAlone) {
  const auto command = hexagon::FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  auto backend = MakeCoScheduler(kProductsOnDsp, {});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_TRUE((*backend)->traits().multiplies_codes);
  const auto program =
      CompileStage(Small(), 0, Small().layer_count() - 1, 4, **FindRecipe("sbm:8,8,8"),
                   {.max_batch = 4, .integer_products = true});
  ASSERT_TRUE(program.ok()) << program.status();
  const auto schedule = (*backend)->Schedule(*program);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  int products = 0;
  for (int part = 0; part < kPartCount; ++part) {
    const auto& all = program->parts[static_cast<size_t>(part)];
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_product = TraitsOf(all[i].code).is_product();
      products += is_product ? 1 : 0;
      EXPECT_EQ(schedule->parts[static_cast<size_t>(part)][i].processor, is_product ? 1 : 0)
          << Name(all[i].code);
    }
  }
  EXPECT_EQ(products, 4 + 3 + 4 + 4) << "forward, input- and weight-gradient, evaluation";
}

}  // namespace
}  // namespace runnel::hexagon_codes_test
