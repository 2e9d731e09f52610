#include "kernels/backends/cpu/lone_kernels.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/int8/int8_conv.h"

namespace runnel::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// No zeros and nothing denormal: some processors are slower or faster with these.
void FillSmall(std::vector<float>& values) {
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01f * (static_cast<float>(i % 101) - 50.5f);
}

}  // namespace

LoneConv::LoneConv(const ConvShape& s, int64_t batch, ThreadPool* pool) {
  buffers_[0].shape = {batch, s.in_c, s.in_h, s.in_w};
  buffers_[1].shape = {s.out_c, s.in_c / s.groups, s.kernel_h, s.kernel_w};
  buffers_[2].shape = {s.out_c};
  buffers_[3].shape = {batch, s.out_c, s.out_h, s.out_w};
  std::vector<float>* const values[] = {&x_, &weights_, &bias_, &y_};
  for (size_t i = 0; i < 4; ++i) {
    values[i]->resize(static_cast<size_t>(buffers_[i].shape.elements()));
    FillSmall(*values[i]);
    const Operand operand = {reinterpret_cast<std::byte*>(values[i]->data()), &buffers_[i]};
    (i < 3 ? inputs_[i] : outputs_[0]) = operand;
  }
  instruction_.code = OpCode::kConvForward;
  OpSpec& op = instruction_.attributes;
  op.kind = OpKind::kConv;
  op.out_channels = s.out_c;
  op.kernel = {s.kernel_h, s.kernel_w};
  op.stride = {s.stride_h, s.stride_w};
  op.padding = {s.pad_h, s.pad_w};
  op.groups = s.groups;
  op.bias = true;
  call_.instruction = &instruction_;
  call_.inputs = inputs_;
  call_.outputs = outputs_;
  call_.context = &context_;
  call_.channels_last = true;
  call_.machine = {
      .fp32 = fp32::SupportedKernels().front(), .pool = pool, .workspace = &workspace_};
}

void LoneConv::Run() {
  workspace_.Reset();
  // It has no error of its own.
  fp32::ConvForward({&call_, 1}).IgnoreError();
}

std::vector<double> LoneKernelTimer::ConvSeconds(absl::Span<const ConvShape> shapes, int64_t batch,
                                                 int passes) {
  ThreadPool pool(threads_);
  std::vector<double> medians;
  for (const ConvShape& shape : shapes) {
    LoneConv conv(shape, batch, &pool);
    std::vector<double> seconds;
    for (int pass = 0; pass <= passes; ++pass) {
      const Clock::time_point start = Clock::now();
      conv.Run();
      if (pass > 0) seconds.push_back(SecondsSince(start));
    }
    const auto middle = seconds.begin() + static_cast<int64_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    medians.push_back(*middle);
  }
  return medians;
}

double LoneKernelTimer::MeasureInt8Peak() {
  const Int8Kernels& kernels = BestInt8Kernels();
  constexpr int kTiles = 64, kRounds = 50;
  constexpr int64_t kValues = 256;  // of the reduction: a panel of 16 KiB
  const int64_t steps = kValues / kernels.k_group;
  alignas(64) static int8_t panel[kValues * kMaxPanelColumns];
  alignas(64) static uint8_t rows[kMaxTileRows][kValues];
  alignas(64) static int32_t sums[kMaxTileRows][kMaxPanelColumns];
  const uint8_t* a[kMaxTileRows];
  int32_t* c[kMaxTileRows];
  for (int r = 0; r < kMaxTileRows; ++r) {
    a[r] = rows[r];
    c[r] = sums[r];
  }
  const Int8Segment segment = {.steps = steps};
  const Int8Tile tile{.a = a,
                      .a_step = kernels.k_group,
                      .b = panel,
                      .segments = &segment,
                      .segment_count = 1,
                      .c = c,
                      .rows = kernels.tile_rows,
                      .columns = kernels.panel_columns};
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kTiles; ++i) kernels.tile(tile);
    best = std::min(best, SecondsSince(start));
  }
  return 2.0 * kTiles * kValues * kernels.tile_rows * kernels.panel_columns / best;
}

}  // namespace runnel::cpu
