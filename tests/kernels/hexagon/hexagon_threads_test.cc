// Convolutions on threads of the DSP: the same bytes on one, two and four, and what the longest of
// them has to do, in packets that the emulator counts for each. Skipped where there is no emulator.

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "proto/base/model/number_format.h"

namespace runnel::hexagon::hexagon_threads_test {
namespace {

struct Shape {
  const char* name;
  DspImages x, y;
  DspWindow window;
  int groups = 1;
};

// Memory of the session with pseudo-random bytes, and an operation on it.
class Bench {
 public:
  explicit Bench(uint32_t threads, uint32_t scratch_bytes = 1u << 28) {
    session_ = *OpenEmulatedSession({.command = *FindEmulator(),
                                     .private_bytes = 2 * scratch_bytes,
                                     .packed_bytes = scratch_bytes,
                                     .threads = threads});
  }

  DspTensor MakeTensor(uint32_t elements, uint32_t bytes) {
    const uint32_t tail = (elements * bytes + 63) / 64 * 64;
    areas_.push_back(*session_->memory()->Allocate(tail + kTailBytes));
    std::byte* at = areas_.back()->address();
    for (uint32_t i = 0; i < elements * bytes; ++i) {
      at[i] = static_cast<std::byte>((i + areas_.size()) * 2654435761u >> 25);
    }
    const ScaleTail scale = {.exponent = -5, .max_abs = 127};
    std::memcpy(at + tail, &scale, sizeof(scale));
    const uint32_t offset = session_->memory()->OffsetOf(at);
    return {offset, offset + tail, elements, bytes, 0};
  }

  DspOp MakeOp(const Shape& shape, DspCode code, uint32_t flags) {
    const auto count = [](const DspImages& i) { return uint32_t(i.n) * i.c * i.h * i.w; };
    DspOp op;
    op.code = code;
    op.flags = flags;
    op.x = shape.x;
    op.y = shape.y;
    op.window = shape.window;
    op.groups = shape.groups;
    op.shift = 6;
    const bool forward = code == DspCode::kConvForward;
    const uint32_t weights =
        uint32_t(shape.x.c) / shape.groups * shape.y.c * shape.window.kh * shape.window.kw;
    op.in[0] = MakeTensor(count(forward ? shape.x : shape.y), 1);
    if (code == DspCode::kConvWeightGradient) {
      op.in[1] = MakeTensor(count(shape.x), 1);
      op.out[0] = MakeTensor(weights, 4);
      return op;
    }
    op.in[1] = MakeTensor(weights, 1);
    op.in[1].version = 1;
    op.out[0] = MakeTensor(count(forward ? shape.y : shape.x), flags == 0 ? 4 : 1);
    if (flags != 0) op.out[1] = MakeTensor(1, sizeof(DspSums));
    return op;
  }

  // The bytes of a result after these operations, which find nothing of them.
  std::vector<std::byte> ResultOf(const std::vector<DspOp>& ops, const DspTensor& result) {
    std::byte* at = session_->memory()->base() + result.data;
    const size_t bytes = size_t{result.elements} * result.bytes;
    std::memset(at, 0x55, bytes);
    EXPECT_TRUE(session_->Submit(ops).ok());
    EXPECT_TRUE(session_->Wait().ok());
    return {at, at + bytes};
  }

  bool HasMemoryFor(const DspOp& op) {
    return session_->Submit({op, op}).ok() && session_->Wait().ok();
  }

  // The bytes of the results with their tails, and what lies behind them.
  std::vector<std::byte> Run(const DspOp& op, DspCounts* counts) {
    EXPECT_TRUE(session_->Submit({op, op}).ok());
    EXPECT_TRUE(session_->Wait().ok());
    *counts = session_->counts()[1];  // the first one packs the weights
    std::vector<std::byte> result;
    for (const auto& area : areas_) {
      result.insert(result.end(), area->address(), area->address() + area->bytes());
    }
    return result;
  }

 private:
  std::unique_ptr<DspSession> session_;
  std::vector<std::unique_ptr<Memory>> areas_;
};

constexpr DspCode kCodes[] = {DspCode::kConvForward, DspCode::kConvInputGradient,
                              DspCode::kConvWeightGradient};

constexpr Shape kShapes[] = {
    {"images_across_tiles", {4, 32, 12, 12}, {4, 48, 12, 12}, {3, 3, 1, 1, 1, 1}},
    {"odd_sizes", {3, 37, 11, 13}, {3, 41, 11, 13}, {3, 3, 1, 1, 1, 1}},
    {"stride_two", {6, 32, 17, 15}, {6, 50, 9, 8}, {3, 3, 2, 2, 1, 1}},
    {"images_of_four", {32, 64, 2, 2}, {32, 64, 2, 2}, {3, 3, 1, 1, 1, 1}},
    {"images_of_sixteen", {5, 64, 4, 4}, {5, 130, 4, 4}, {3, 3, 1, 1, 1, 1}},
    {"one_by_one", {2, 128, 14, 14}, {2, 67, 14, 14}, {1, 1, 1, 1, 0, 0}},
    {"groups", {4, 64, 16, 16}, {4, 64, 16, 16}, {3, 3, 1, 1, 1, 1}, 4},
    {"depthwise", {8, 64, 16, 16}, {8, 64, 16, 16}, {3, 3, 1, 1, 1, 1}, 64},
};

class ThreadsTest : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    const auto command = FindEmulator();
    if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  }
};

TEST_P(ThreadsTest, GiveTheSameBytes) {
  for (DspCode code : kCodes) {
    for (uint32_t flags : {0u, kFlagRescaled | kFlagKept, kFlagRescaled | kFlagGuessed}) {
      if (flags != 0 && code == DspCode::kConvWeightGradient) continue;
      std::vector<std::byte> one;
      for (uint32_t threads : {1u, 2u, 4u}) {
        Bench bench(threads);
        DspCounts counts;
        const auto bytes = bench.Run(bench.MakeOp(GetParam(), code, flags), &counts);
        if (threads == 1) {
          one = bytes;
          EXPECT_EQ(counts.longest, counts.packets);
        } else {
          EXPECT_LE(counts.longest, counts.packets);
        }
        ASSERT_TRUE(bytes == one) << threads << " threads, code " << static_cast<uint32_t>(code)
                                  << ", flags " << flags;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ThreadsTest, testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

// Weights of more than the cache holds go in blocks through several tiles of pixels. A batch of one
// tile takes them whole.
TEST(BlocksTest, HaveTheSumsOfOneTileEach) {
  const auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  constexpr int kBatch = 24, kOfTile = 8;  // images of 16 pixels, 128 to a tile
  const Shape shape = {"wide", {kBatch, 256, 4, 4}, {kBatch, 310, 4, 4}, {3, 3, 1, 1, 1, 1}};
  for (DspCode code : {DspCode::kConvForward, DspCode::kConvInputGradient}) {
    for (uint32_t threads : {1u, 4u}) {
      Bench bench(threads);
      const DspOp whole = bench.MakeOp(shape, code, 0);
      std::vector<DspOp> tiles;
      for (uint32_t first = 0; first < kBatch; first += kOfTile) {
        DspOp tile = whole;
        tile.x.n = tile.y.n = kOfTile;
        tile.in[0].data += first * (whole.in[0].elements / kBatch);
        tile.in[0].elements /= kBatch / kOfTile;
        tile.out[0].data += first * (whole.out[0].elements / kBatch) * 4;
        tile.out[0].elements /= kBatch / kOfTile;
        tiles.push_back(tile);
      }
      const auto expected = bench.ResultOf(tiles, whole.out[0]);
      EXPECT_TRUE(bench.ResultOf({whole}, whole.out[0]) == expected)
          << threads << " threads, code " << static_cast<uint32_t>(code);
    }
  }
}

// A thread more needs more memory: with less there are fewer.
TEST(ScratchTest, WhatOneThreadNeedsIsEnough) {
  const auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  const Shape shape = {"groups", {4, 64, 16, 16}, {4, 64, 16, 16}, {3, 3, 1, 1, 1, 1}, 4};
  for (DspCode code : kCodes) {
    const auto suffices = [&](uint32_t kib) {
      Bench bench(1, kib << 10);
      return bench.HasMemoryFor(bench.MakeOp(shape, code, 0));
    };
    uint32_t few = 8, enough = 2048;
    ASSERT_TRUE(!suffices(few) && suffices(enough)) << static_cast<uint32_t>(code);
    while (enough - few > 1) {
      const uint32_t middle = (few + enough) / 2;
      (suffices(middle) ? enough : few) = middle;
    }
    DspCounts counts;
    Bench one(1), four(4, enough << 10);
    EXPECT_TRUE(four.Run(four.MakeOp(shape, code, 0), &counts) ==
                one.Run(one.MakeOp(shape, code, 0), &counts))
        << enough << " KiB, code " << static_cast<uint32_t>(code);
  }
}

// VGG-11's, at batches that the emulator can bear; the training's have more tiles.
struct Layer {
  const char* name;
  int batch, in, out, side;
  // Of one thread's packets, the longest of four: forward and input-gradient, weight-gradient.
  double most, most_weights;
};
constexpr Layer kLayers[] = {
    {"c2_64_128_16x16", 4, 64, 128, 16, 0.3, 0.37},
    {"c4_256_256_8x8", 8, 256, 256, 8, 0.3, 0.3},
    {"c6_512_512_4x4", 16, 512, 512, 4, 0.3, 0.3},
};

class LongestThreadTest : public testing::TestWithParam<Layer> {};

TEST_P(LongestThreadTest, HasItsShareOfThePackets) {
  const auto command = FindEmulator();
  if (!command.ok()) GTEST_SKIP() << "no DSP here: " << command.status().message();
  const Layer& l = GetParam();
  const Shape shape = {l.name,
                       {l.batch, l.in, l.side, l.side},
                       {l.batch, l.out, l.side, l.side},
                       {3, 3, 1, 1, 1, 1}};
  for (DspCode code : kCodes) {
    uint32_t alone = 0;
    for (uint32_t threads : {1u, 2u, 4u}) {
      Bench bench(threads);
      DspCounts counts;
      bench.Run(bench.MakeOp(shape, code, 0), &counts);
      if (threads == 1) alone = counts.packets;
      std::printf("%s code %u, batch %d, %u threads: %u packets, the longest thread's %u, %.3f\n",
                  l.name, static_cast<uint32_t>(code), l.batch, threads, counts.packets,
                  counts.longest, 1.0 * counts.longest / alone);
      EXPECT_LE(counts.packets, alone * 1.2) << "work that threads add";
      const double most = code == DspCode::kConvWeightGradient ? l.most_weights : l.most;
      EXPECT_LE(counts.longest, threads == 4 ? alone * most : alone * 1.0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, LongestThreadTest, testing::ValuesIn(kLayers),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace runnel::hexagon::hexagon_threads_test
