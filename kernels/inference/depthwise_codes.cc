#include "kernels/inference/depthwise_codes.h"

#include <algorithm>

namespace runnel::inference {
namespace {

constexpr int64_t kTaps = 9, kTapGroups = 3;

// The channel at place `at` of a block.
int64_t ChannelAt(int64_t at) { return at / 4 % 4 * 16 + at / 16 * 4 + at % 4; }

}  // namespace

std::optional<DepthwiseCodes> DepthwiseCodes::Of(const Int8Node& n, const Coding& in,
                                                 const Requantizer& requantizer,
                                                 const CodeLoops& loops) {
  const cpu::ConvShape& s = n.node.shape;
  const CodeColumns columns = requantizer.Columns();
  if (loops.depthwise_nine == nullptr || !s.depthwise() || s.kernel_h != 3 || s.kernel_w != 3 ||
      in.zero != 0 || columns.scales == nullptr || columns.weight_zeros != nullptr) {
    return std::nullopt;
  }
  DepthwiseCodes made(n, loops);
  made.clamp_ = columns;
  made.outside_.assign(s.in_w * s.in_c, 0);
  if (s.stride_w == 1 && kNineTapsBlock % s.out_c == 0) {
    made.pixels_of_block_ = kNineTapsBlock / s.out_c;
  }
  const int64_t columns_of_blocks = made.pixels_of_block_ * s.out_c;
  const int64_t blocks = (columns_of_blocks + kNineTapsBlock - 1) / kNineTapsBlock;
  made.weights_.assign(blocks * kNineTapsBlock * kTapGroups * 4, 0);
  for (int64_t at = 0; at < blocks * kNineTapsBlock; ++at) {
    const int64_t block = at / kNineTapsBlock * kNineTapsBlock, place = at - block;
    const int64_t column = block + ChannelAt(place);
    const bool is_channel = column < columns_of_blocks;
    const int64_t c = column % s.out_c;
    int64_t sum = 0;
    for (int64_t tap = 0; tap < kTaps && is_channel; ++tap) {
      const int8_t weight = n.weights[c * kTaps + tap];
      sum += weight;
      made.weights_[((block * kTapGroups) + tap / 4 * kNineTapsBlock + place) * 4 + tap % 4] =
          weight;
    }
    // Modulo 2^32, as sums are: what is left at the end fits.
    made.offsets_.push_back(
        is_channel ? static_cast<int32_t>(int64_t{columns.offsets[c]} - 128 * sum) : 0);
    made.multipliers_.push_back(is_channel ? columns.multipliers[c] : 0);
    made.shifts_.push_back(is_channel ? columns.shifts[c] : 1);
    made.limits_.push_back(is_channel ? columns.limits[c] : INT32_MAX);
    made.scales_.push_back(is_channel ? columns.scales[c] : 0);
  }
  return made;
}

void DepthwiseCodes::RunRow(const int8_t* image, int64_t oh, int8_t* codes) const {
  const cpu::ConvShape& s = node_->node.shape;
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
      const int64_t ih = oh * s.stride_h - s.pad_h + tap / 3;
      const int64_t iw = first * s.stride_w - s.pad_w + tap % 3;
      const bool row_inside = ih >= 0 && ih < s.in_h, inside = iw >= 0 && iw < s.in_w;
      taps[tap] = row_inside && inside ? image + (ih * s.in_w + iw) * s.in_c : outside_.data();
    }
    loops_->depthwise_nine(columns, {.x = taps,
                                     .x_step = s.stride_w * together * s.in_c,
                                     .weights = weights_.data(),
                                     .pixels = pixels,
                                     .channels = together * s.in_c,
                                     .codes = codes + first * s.in_c});
  };
  const int64_t begin = std::min(s.out_w, (s.pad_w + s.stride_w - 1) / s.stride_w);
  const int64_t reach = s.in_w + s.pad_w - 3;  // of the last window that lies inside
  const int64_t end = reach < 0 ? begin : std::clamp(reach / s.stride_w + 1, begin, s.out_w);
  for (int64_t ow = 0; ow < begin; ++ow) run(ow, 1, 1);
  const int64_t blocks = (end - begin) / pixels_of_block_;
  if (blocks > 0) run(begin, blocks, pixels_of_block_);
  const int64_t rest = begin + blocks * pixels_of_block_;
  if (end > rest) run(rest, end - rest, 1);
  for (int64_t ow = end; ow < s.out_w; ++ow) run(ow, 1, 1);
}

void DepthwiseCodes::Run(cpu::ThreadPool& pool, int64_t batch, const int8_t* x,
                         int8_t* codes) const {
  const cpu::ConvShape& s = node_->node.shape;
  pool.ParallelFor(batch * s.out_h, [&](int, int64_t line) {
    RunRow(x + line / s.out_h * s.in_h * s.in_w * s.in_c, line % s.out_h,
           codes + line * s.out_w * s.out_c);
  });
}

}  // namespace runnel::inference
