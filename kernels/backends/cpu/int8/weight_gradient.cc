#include "kernels/backends/cpu/int8/weight_gradient.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/backends/cpu/int8/weight_gradient_layout.h"
#include "kernels/ir/arithmetic/integer_math.h"

namespace runnel::cpu {
namespace {

// im2col: the taps of output pixels of the problem's shape, zeros in the padding.
class Unfolder {
 public:
  Unfolder(const WeightGradientProblem& problem, const int8_t* x)
      : s_(problem.shape),
        pixel_(problem.x_pixel),
        x_(x),
        x_end_(x + s_.batch * s_.in_h * s_.in_w * pixel_),
        row_bytes_(s_.kernel_w * s_.in_c) {}

  // Pixels [begin, end) to `out`, behind which kUnfoldSlackBytes are overwritten.
  void Run(int64_t begin, int64_t end, int8_t* out) const {
    int64_t ox = begin % s_.out_w, oy = begin / s_.out_w % s_.out_h;
    int64_t n = begin / s_.out_w / s_.out_h;
    for (int64_t p = begin; p < end; ++p, out += s_.kernel_h * row_bytes_) {
      Pixel(n, oy, ox, out);
      if (++ox < s_.out_w) continue;
      ox = 0;
      if (++oy < s_.out_h) continue;
      oy = 0;
      ++n;
    }
  }

 private:
  void Pixel(int64_t n, int64_t oy, int64_t ox, int8_t* out) const {
    const int64_t left = ox * s_.stride_w - s_.pad_w, top = oy * s_.stride_h - s_.pad_h;
    const bool inside = left >= 0 && left + s_.kernel_w <= s_.in_w && pixel_ == s_.in_c;
    const int8_t* row = x_ + ((n * s_.in_h + top) * s_.in_w + left) * pixel_;
    for (int64_t kh = 0; kh < s_.kernel_h; ++kh, row += s_.in_w * pixel_, out += row_bytes_) {
      if (top + kh < 0 || top + kh >= s_.in_h) {
        std::memset(out, 0, row_bytes_);
      } else if (inside && x_end_ - row >= row_bytes_ + kUnfoldSlackBytes) {
        // In whole vectors: what is too much is overwritten by what comes next.
        for (int64_t i = 0; i < row_bytes_; i += 16) std::memcpy(out + i, row + i, 16);
      } else {
        BorderRow(left, row, out);
      }
    }
  }

  void BorderRow(int64_t left, const int8_t* row, int8_t* out) const {
    std::memset(out, 0, row_bytes_);
    const int64_t end = std::min(s_.kernel_w, s_.in_w - left);
    for (int64_t kw = std::max<int64_t>(0, -left); kw < end; ++kw) {
      std::memcpy(out + kw * s_.in_c, row + kw * pixel_, s_.in_c);
    }
  }

  const ConvShape& s_;
  const int64_t pixel_;
  const int8_t* x_;
  const int8_t* x_end_;
  const int64_t row_bytes_;
};

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Outputs o in `range` whose input o * stride + offset is in [0, in).
Range ValidOutputs(Range range, int64_t stride, int64_t offset, int64_t in) {
  const int64_t first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t last = in - 1 - offset < 0 ? -1 : (in - 1 - offset) / stride;
  const int64_t begin = std::max(range.begin, first);
  return {begin, std::max(begin, std::min(range.end, last + 1))};
}

// One thread's output channels.
class Part {
 public:
  Part(const WeightGradientSizes& sizes, const WeightGradientOperands& operands,
       const WeightGradientThread& memory, Range channels)
      : sizes_(sizes),
        shape_(sizes.shape),
        kernels_(sizes.kernels),
        operands_(operands),
        memory_(memory),
        channels_(channels) {
    std::fill_n(memory_.max_lanes, kMaxLanes, 0u);
    dw_ = operands.dw != nullptr ? operands.dw + channels.begin * row_elements() : memory.sums;
  }

  void Run() {
    if (operands_.wide != nullptr && !operands_.adds) {
      std::fill_n(operands_.wide + channels_.begin * row_elements(),
                  channels_.size() * row_elements(), int64_t{0});
    }
    for (int64_t n = 0; n < shape_.batch; n += sizes_.chunk_images) {
      images_ = {n, std::min(shape_.batch, n + sizes_.chunk_images)};
      image_steps_ = (images_.size() + kernels_.k_group - 1) / kernels_.k_group;
      for (int64_t y = 0; y < shape_.out_h; y += sizes_.chunk_rows) {
        rows_ = {y, std::min(shape_.out_h, y + sizes_.chunk_rows)};
        RunChunk();
      }
    }
    if (operands_.wide != nullptr) Flush();
  }

 private:
  int64_t row_elements() const { return shape_.taps() * shape_.in_c; }

  void RunChunk() {
    const int64_t products = images_.size() * rows_.size() * shape_.out_w;
    // 2^17 - 1: a product of codes may be 2^14 (Int8Kernels::takes_lowest).
    constexpr int64_t kMostProducts = 131071;
    static_assert(kMostProducts <= kMaxInt32Products);
    if (operands_.wide != nullptr && products_ + products > kMostProducts) Flush();
    // With wide, what is there is not in the tiles' sums.
    first_ = products_ == 0 && (operands_.wide != nullptr || !operands_.adds);
    products_ += products;
    last_ = images_.end == shape_.batch && rows_.end == shape_.out_h;
    PackDy();
    if (sizes_.mode == PixelMode::kUnfold) {
      Unfolder(sizes_.problem, operands_.x).Run(images_.begin, images_.end, memory_.unfolded);
    }
    for (int64_t c = 0; c < shape_.in_c; c += kernels_.panel_columns) RunColumns(c);
  }

  void Flush() {
    int64_t* wide = operands_.wide + channels_.begin * row_elements();
    const int64_t count = channels_.size() * row_elements();
    for (int64_t i = 0; i < count; ++i) wide[i] += memory_.sums[i];
    products_ = 0;
  }

  void PackDy() {
    const int64_t plane = shape_.out_h * shape_.out_w, pixel = sizes_.problem.dy_pixel;
    const int64_t pixel_bytes = image_steps_ * kernels_.tile_rows * kernels_.k_group;
    const int8_t* from = operands_.dy +
                         (images_.begin * plane + rows_.begin * shape_.out_w) * pixel +
                         channels_.begin;
    uint8_t* to = memory_.a;
    for (int64_t p = 0; p < rows_.size() * shape_.out_w; ++p, to += pixel_bytes, from += pixel) {
      kernels_.pack_a(from, plane * pixel, images_.size(), channels_.size(), to,
                      sizes_.a_panel_bytes);
    }
  }

  // x of `columns_` channels from c on, all pixels that the chunk's rows read.
  void PackX(int64_t c) {
    const int64_t first = rows_.begin * shape_.stride_h - shape_.pad_h;
    const int64_t last = (rows_.end - 1) * shape_.stride_h - shape_.pad_h + shape_.kernel_h;
    x_rows_ = {std::max<int64_t>(0, first), std::min(shape_.in_h, last)};
    const int64_t plane = shape_.in_h * shape_.in_w, pixel = sizes_.x_pixel;
    const bool unfolded = sizes_.mode == PixelMode::kUnfold;
    const int8_t* from =
        c + (unfolded
                 ? memory_.unfolded
                 : operands_.x + (images_.begin * plane + x_rows_.begin * shape_.in_w) * pixel);
    int8_t* to = memory_.b;
    for (int64_t p = 0; p < x_rows_.size() * shape_.in_w; ++p, to += x_pixel_bytes()) {
      kernels_.pack_b_rows(from + p * pixel, plane * pixel, images_.size(), columns_, width_, to);
    }
  }
  int64_t x_pixel_bytes() const { return image_steps_ * kernels_.k_group * width_; }

  void RunColumns(int64_t c) {
    columns_ = static_cast<int>(std::min<int64_t>(kernels_.panel_columns, shape_.in_c - c));
    width_ = (columns_ + kernels_.column_unit - 1) / kernels_.column_unit * kernels_.column_unit;
    PackX(c);
    for (int64_t kh = 0; kh < shape_.kernel_h; ++kh) {
      for (int64_t kw = 0; kw < shape_.kernel_w; ++kw) {
        RunTap(FillSegments(kh, kw), (kh * shape_.kernel_w + kw) * shape_.in_c + c);
      }
    }
  }

  int FillSegments(int64_t kh, int64_t kw) {
    const int64_t move_h = kh - shape_.pad_h, move_w = kw - shape_.pad_w;
    const Range valid_h = ValidOutputs(rows_, shape_.stride_h, move_h, shape_.in_h);
    const Range valid_w = ValidOutputs({0, shape_.out_w}, shape_.stride_w, move_w, shape_.in_w);
    const int64_t a_pixel = image_steps_ * kernels_.tile_rows * kernels_.k_group;
    const int64_t run = shape_.stride_w == 1 ? valid_w.size() : 1;
    int count = 0;
    for (int64_t y = valid_h.begin; y < valid_h.end; ++y) {
      const int64_t iy = y * shape_.stride_h + move_h - x_rows_.begin;
      for (int64_t x = valid_w.begin; x < valid_w.end; x += run) {
        memory_.segments[count++] = {
            ((y - rows_.begin) * shape_.out_w + x) * a_pixel,
            (iy * shape_.in_w + x * shape_.stride_w + move_w) * x_pixel_bytes(),
            run * image_steps_};
      }
    }
    return count;
  }

  // All output channels of one tap; `element` is its place in a row of dw.
  void RunTap(int segment_count, int64_t element) {
    Int8Tile tile{.a_step = int64_t{kernels_.tile_rows} * kernels_.k_group,
                  .b = memory_.b,
                  .segments = memory_.segments,
                  .segment_count = segment_count,
                  .columns = columns_};
    if (kernels_.a_bias != 0) {
      std::fill_n(memory_.start, width_, 0);
      kernels_.column_start(memory_.b, memory_.segments, segment_count, width_, memory_.start);
      tile.start = memory_.start;
    }
    if (last_ && operands_.max_lanes != nullptr) tile.max_lanes = memory_.max_lanes;
    const uint8_t* a[kMaxTileRows];
    int32_t* c[kMaxTileRows];
    tile.a = a;
    tile.c = c;
    tile.addend = first_ ? nullptr : c;
    const bool rounds = last_ && operands_.rounding != nullptr;
    const bool stores = dw_ != nullptr;  // or this is the only chunk
    const uint8_t* panel = memory_.a;
    for (int64_t oc = 0; oc < channels_.size(); oc += kernels_.tile_rows) {
      tile.rows = static_cast<int>(std::min<int64_t>(kernels_.tile_rows, channels_.size() - oc));
      for (int r = 0; r < tile.rows; ++r) {
        a[r] = panel + r * kernels_.k_group;
        c[r] = stores ? dw_ + (oc + r) * row_elements() + element : nullptr;
      }
      if (rounds) {
        RoundTile(tile, (channels_.begin + oc) * row_elements() + element);
      } else {
        kernels_.tile(tile);
      }
      panel += sizes_.a_panel_bytes;
    }
  }

  // The sums of the last chunk's tile and those before, to `rounded` from element `place` on.
  void RoundTile(Int8Tile& tile, int64_t place) {
    const Int8TileRounding& rounding = *operands_.rounding;
    int8_t* y[kMaxTileRows];
    for (int r = 0; r < tile.rows; ++r) y[r] = operands_.rounded + place + r * row_elements();
    if (kernels_.rounds_tiles) {
      tile.rounding = &rounding;
      tile.y = y;
      tile.saturated = memory_.saturated;
      return kernels_.tile(tile);
    }
    int32_t* sums[kMaxTileRows];
    for (int r = 0; r < tile.rows; ++r) sums[r] = memory_.tile + r * kMaxPanelColumns;
    int32_t* const* const stored = std::exchange(tile.c, sums);
    kernels_.tile(tile);
    tile.c = stored;
    const auto round =
        rounding.half_away ? kernels_.rescale_half_away : kernels_.rescale_pseudo_stochastic;
    for (int r = 0; r < tile.rows; ++r)
      round(sums[r], columns_, rounding.shift, /*relu=*/false, nullptr, y[r]);
  }

  const WeightGradientSizes& sizes_;
  const ConvShape& shape_;
  const Int8Kernels& kernels_;
  const WeightGradientOperands& operands_;
  const WeightGradientThread& memory_;
  const Range channels_;
  int32_t* dw_ = nullptr;  // from the first of channels_ on
  Range images_{}, rows_{}, x_rows_{};
  int64_t image_steps_ = 0;  // of images_
  int64_t products_ = 0;     // in dw_
  bool first_ = true, last_ = false;
  int columns_ = 0, width_ = 0;
};

}  // namespace

int64_t WeightGradientWorkspaceBytes(const Int8Kernels& kernels,
                                     const WeightGradientProblem& problem, PartialSums partial,
                                     int threads) {
  const WeightGradientSizes sizes(kernels, problem);
  return threads * WeightGradientThread(sizes, partial, threads, nullptr).bytes;
}

void RunWeightGradient(const Int8Context& context, const WeightGradientProblem& problem,
                       const WeightGradientOperands& operands) {
  const WeightGradientSizes sizes(*context.kernels, problem);
  const int threads = context.pool->threads();
  const PartialSums partial = operands.wide != nullptr       ? PartialSums::kWide
                              : operands.rounding != nullptr ? PartialSums::kRounded
                                                             : PartialSums::kInPlace;
  const int64_t thread_bytes = WeightGradientThread(sizes, partial, threads, nullptr).bytes;
  const auto memory_of = [&](int64_t t) {
    return WeightGradientThread(sizes, partial, threads, context.workspace + t * thread_bytes);
  };
  context.pool->ParallelFor(threads, [&](int, int64_t t) {
    const WeightGradientThread memory = memory_of(t);
    Part(sizes, operands, memory,
         {sizes.FirstChannel(t, threads), sizes.FirstChannel(t + 1, threads)})
        .Run();
  });
  if (operands.max_lanes == nullptr) return;
  for (int64_t t = 0; t < threads; ++t) {
    const WeightGradientThread memory = memory_of(t);
    for (int i = 0; i < kMaxLanes; ++i) {
      operands.max_lanes[i] = std::max(operands.max_lanes[i], memory.max_lanes[i]);
    }
  }
}

}  // namespace runnel::cpu
