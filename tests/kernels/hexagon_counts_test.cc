// What the emulator counts for whole kernels at the shapes of VGG-11: packets, which are exact and
// repeatable but no time. They may not rise by more than 2 % over what is written here. Skipped
// where there is no emulator.

#include <cstdio>
#include <cstring>

#include "gtest/gtest.h"
#include "kernels/hexagon/emulated_session.h"

namespace runnel::hexagon {
namespace {

struct Layer {
  const char* test;
  const char* name;
  DspCode code;
  DspImages x;
  DspImages y;
  int kernel;  // and padding kernel / 2
  uint32_t packets;
  uint32_t kept = 0;  // of the same with kRescale in it, its scale kept
};

// clang-format off
constexpr Layer kLayers[] = {
    {"conv_64_128_16x16_forward", "conv 64-128 16x16 forward", DspCode::kConvForward, {2, 64, 16, 16}, {2, 128, 16, 16}, 3, 191483, 206231},
    {"conv_256_256_8x8_forward", "conv 256-256 8x8 forward", DspCode::kConvForward, {4, 256, 8, 8}, {4, 256, 8, 8}, 3, 685384, 714478},
    {"conv_512_512_4x4_forward", "conv 512-512 4x4 forward", DspCode::kConvForward, {8, 512, 4, 4}, {8, 512, 4, 4}, 3, 1427196, 1431872},
    {"conv_256_256_8x8_input_gradient", "conv 256-256 8x8 input-gradient", DspCode::kConvInputGradient, {4, 256, 8, 8}, {4, 256, 8, 8}, 3, 685377, 714472},
    {"conv_256_256_8x8_weight_gradient", "conv 256-256 8x8 weight-gradient", DspCode::kConvWeightGradient, {4, 256, 8, 8}, {4, 256, 8, 8}, 3, 1007231},
    {"linear_512_512_forward", "linear 512-512 forward", DspCode::kLinearForward, {64, 512, 1, 1}, {64, 512, 1, 1}, 1, 101246, 108689},
    {"linear_512_512_weight_gradient", "linear 512-512 weight-gradient", DspCode::kLinearWeightGradient, {64, 512, 1, 1}, {64, 512, 1, 1}, 1, 180954},
};
// clang-format on

class HexagonCounts : public testing::TestWithParam<Layer> {};

TEST_P(HexagonCounts, PacketsDoNotRise) {
  auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  auto session = OpenEmulatedSession({.command = *std::move(command), .shared_bytes = 256 << 20});
  ASSERT_TRUE(session.ok()) << session.status();
  const Layer& layer = GetParam();
  SharedMemory& memory = *(*session)->memory();
  std::vector<std::unique_ptr<Memory>> areas;
  const auto tensor = [&](uint32_t elements, uint32_t bytes, uint64_t version) {
    const uint32_t tail = (elements * bytes + 63) / 64 * 64;
    areas.push_back(*memory.Allocate(tail + kTailBytes));
    for (uint32_t i = 0; i < elements * bytes; ++i) {
      areas.back()->address()[i] = static_cast<std::byte>(i * 2654435761u >> 25);
    }
    const uint32_t at = memory.OffsetOf(areas.back()->address());
    return DspTensor{at, at + tail, elements, bytes, version};
  };
  const auto elements = [](const DspImages& i) { return uint32_t(i.n) * i.c * i.h * i.w; };
  DspOp op;
  op.code = layer.code;
  op.x = layer.x;
  op.y = layer.y;
  op.window = {layer.kernel, layer.kernel, 1, 1, layer.kernel / 2, layer.kernel / 2};
  const uint32_t weights = uint32_t(layer.x.c) * layer.y.c * layer.kernel * layer.kernel;
  const bool forward = layer.code == DspCode::kConvForward || layer.code == DspCode::kLinearForward;
  const bool weight_gradient =
      layer.code == DspCode::kConvWeightGradient || layer.code == DspCode::kLinearWeightGradient;
  op.in[0] = tensor(elements(forward ? layer.x : layer.y), 1, 0);
  op.in[1] = weight_gradient ? tensor(elements(layer.x), 1, 0) : tensor(weights, 1, 1);
  op.out[0] = tensor(weight_gradient ? weights : elements(forward ? layer.y : layer.x), 4, 0);
  // The second time the weights are packed.
  const std::vector<DspOp> ops(2, op);
  ASSERT_TRUE((*session)->Submit(ops).ok());
  ASSERT_TRUE((*session)->Wait().ok());
  const uint32_t packets = (*session)->counts()[1].packets;
  const double products = 1.0 * elements(layer.y) * layer.x.c * layer.kernel * layer.kernel;
  std::printf("%s: %u packets emulated, %.2f vrmpy a packet over the whole kernel\n", layer.name,
              packets, products / 128 / packets);
  EXPECT_LE(packets, layer.packets * 1.02);
  EXPECT_GE(packets, layer.packets * 0.9) << "better: write the new count here";
  if (layer.kept == 0) return;
  DspOp rescale;
  rescale.code = DspCode::kRescale;
  rescale.in[0] = op.out[0];
  rescale.out[0] = tensor(op.out[0].elements, 1, 0);
  DspOp kept = op;
  kept.flags = kFlagRescaled | kFlagKept;
  kept.shift = 5;
  kept.out[0] = rescale.out[0];
  ASSERT_TRUE((*session)->Submit({op, rescale, kept}).ok());
  ASSERT_TRUE((*session)->Wait().ok());
  const absl::Span<const DspCounts> counts = (*session)->counts();
  std::printf("  with kRescale %u packets, with a kept scale %u, %.3f of that\n",
              counts[0].packets + counts[1].packets, counts[2].packets,
              1.0 * counts[2].packets / (counts[0].packets + counts[1].packets));
  EXPECT_LE(counts[2].packets, layer.kept * 1.02);
  EXPECT_GE(counts[2].packets, layer.kept * 0.9) << "better: write the new count here";
}

INSTANTIATE_TEST_SUITE_P(Layers, HexagonCounts, testing::ValuesIn(kLayers),
                         [](const auto& info) { return info.param.test; });

}  // namespace
}  // namespace runnel::hexagon
