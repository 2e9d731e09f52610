#include "kernels/backends/cpu/codes/depthwise_codes.h"

#include <algorithm>

namespace runnel::cpu {
namespace {

constexpr int64_t kTaps = 9, kWindow = 3;

// The channel at a place of a block (NineTaps).
int64_t ChannelAt(int64_t place, int64_t block) {
  const int64_t lanes = std::max<int64_t>(1, block / 16);
  return place / 4 % lanes * 16 + place / (4 * lanes) * 4 + place % 4;
}

}  // namespace

std::optional<DepthwiseCodes> DepthwiseCodes::Of(const ProductSpec& spec,
                                                 const Requantizer& requantizer,
                                                 const CodeLoops& loops) {
  const ConvShape& s = spec.shape;
  const CodeColumns columns = requantizer.Columns();
  const NineTapsLoop& loop = loops.depthwise_nine;
  if (loop.run == nullptr || !s.depthwise() || s.kernel_h != kWindow || s.kernel_w != kWindow ||
      spec.rule->zero_a != 0 || columns.scales == nullptr || columns.weight_zeros != nullptr ||
      (loop.rounds_once && !columns.rounds_once)) {
    return std::nullopt;
  }
  DepthwiseCodes made(s, loop);
  made.clamp_ = columns;
  made.outside_.assign(s.in_w * s.in_c, 0);
  if (s.stride_w == 1 && loop.block % s.out_c == 0) made.pixels_of_block_ = loop.block / s.out_c;
  made.Pack(columns, spec.weights);
  return made;
}

void DepthwiseCodes::Pack(const CodeColumns& columns, absl::Span<const int8_t> weights) {
  const int64_t out_c = shape_.out_c, block = loop_.block;
  const int64_t columns_of_blocks = pixels_of_block_ * out_c;
  const int64_t blocks = (columns_of_blocks + block - 1) / block;
  weights_.assign(blocks * block * kWindow * 4, 0);
  for (int64_t at = 0; at < blocks * block; ++at) {
    const int64_t first = at / block * block, place = at - first;
    const int64_t column = first + ChannelAt(place, block);
    const bool is_channel = column < columns_of_blocks;
    const int64_t c = column % out_c;
    int64_t sum = 0;
    for (int64_t tap = 0; tap < kTaps && is_channel; ++tap) {
      const int8_t weight = weights[c * kTaps + tap];
      sum += weight;
      weights_[(first * kWindow + tap % kWindow * block + place) * 4 + tap / kWindow] = weight;
    }
    // Modulo 2^32, as sums are: what is left at the end fits.
    offsets_.push_back(
        is_channel ? static_cast<int32_t>(int64_t{columns.offsets[c]} - loop_.bias * sum) : 0);
    multipliers_.push_back(is_channel ? columns.multipliers[c] : 0);
    shifts_.push_back(is_channel ? columns.shifts[c] : 1);
    limits_.push_back(is_channel ? columns.limits[c] : INT32_MAX);
    scales_.push_back(is_channel ? columns.scales[c] : 0);
  }
}

void DepthwiseCodes::RunRow(const int8_t* image, int64_t oh, int8_t* codes) const {
  const ConvShape& s = shape_;
  CodeColumns columns = clamp_;
  columns.offsets = offsets_.data();
  columns.multipliers = multipliers_.data();
  columns.shifts = shifts_.data();
  columns.limits = limits_.data();
  columns.scales = scales_.data();
  const int8_t* taps[kTaps];
  // Outputs [first, first + pixels * together), all of whose columns lie inside, or one at the
  // border.
  const auto run = [&](int64_t first, int64_t pixels, int64_t together) {
    for (int64_t tap = 0; tap < kTaps; ++tap) {
      const int64_t ih = oh * s.stride_h - s.pad_h + tap / kWindow;
      const int64_t iw = first * s.stride_w - s.pad_w + tap % kWindow;
      const bool row_inside = ih >= 0 && ih < s.in_h, inside = iw >= 0 && iw < s.in_w;
      taps[tap] = row_inside && inside ? image + (ih * s.in_w + iw) * s.in_c : outside_.data();
    }
    const int64_t x_step = s.stride_w * together * s.in_c;
    loop_.run(columns, {.x = taps,
                        .x_step = x_step,
                        .slides = pixels > 1 && x_step == s.in_c,
                        .weights = weights_.data(),
                        .pixels = pixels,
                        .channels = together * s.in_c,
                        .codes = codes + first * s.in_c});
  };
  const int64_t begin = std::min(s.out_w, (s.pad_w + s.stride_w - 1) / s.stride_w);
  const int64_t reach = s.in_w + s.pad_w - kWindow;  // of the last window that lies inside
  const int64_t end = reach < 0 ? begin : std::clamp(reach / s.stride_w + 1, begin, s.out_w);
  for (int64_t ow = 0; ow < begin; ++ow) run(ow, 1, 1);
  const int64_t blocks = (end - begin) / pixels_of_block_;
  if (blocks > 0) run(begin, blocks, pixels_of_block_);
  const int64_t rest = begin + blocks * pixels_of_block_;
  if (end > rest) run(rest, end - rest, 1);
  for (int64_t ow = end; ow < s.out_w; ++ow) run(ow, 1, 1);
}

void DepthwiseCodes::Run(ThreadPool& pool, int64_t batch, const int8_t* x, int8_t* codes) const {
  const ConvShape& s = shape_;
  pool.ParallelFor(batch * s.out_h, [&](int, int64_t line) {
    RunRow(x + line / s.out_h * s.in_h * s.in_w * s.in_c, line % s.out_h,
           codes + line * s.out_w * s.out_c);
  });
}

}  // namespace runnel::cpu
