#include "kernels/cpu/fp32/conv_weight_gradient.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/fp32/conv_product.h"
#include "kernels/cpu/fp32/packing.h"

namespace runnel::fp32 {
namespace {

constexpr int64_t kBlockFloats = 1 << 17;  // of both sides: they stay in the second-level cache
constexpr int64_t kPixelUnit = 128;

class Runner {
 public:
  Runner(const Call& call, const WeightGradient& g) : call_(call), g_(g) {
    ins_ = g.x_image.c / g.groups;
    outs_ = g.y_image.c / g.groups;
    taps_h_ = g.h.passes[0].taps;
    taps_w_ = g.w.passes[0].taps;
    padded_ = !g.h.inside() || !g.w.inside();
    pixelwise_ = !padded_ && taps() == 1 && g.x_image.rows() == g.y_image.rows();
    row_pixels_ = padded_ ? g.w.high - g.w.low : g.x_image.w;
    image_pixels_ = row_pixels_ * (padded_ ? g.h.high - g.h.low : g.x_image.h);
    // A 1x1 gradient may have either side in registers: the one that fills them better; with the
    // inputs there the sums lie as the weight does.
    swapped_ = taps() == 1 && Waste(ins_) <= Waste(outs_);
  }

  void Run() {
    const int64_t unit_rows = pixelwise_ ? 1 : g_.y_image.positions();
    const int64_t units = pixelwise_ ? g_.y_image.rows() : g_.y_image.n;
    const int64_t unit_floats =
        (pixelwise_ ? 1 : image_pixels_) * g_.x_image.c + unit_rows * g_.y_image.c;
    int64_t block = std::max<int64_t>(1, kBlockFloats / unit_floats);
    if (pixelwise_) block = std::max(kPixelUnit, block / kPixelUnit * kPixelUnit);
    block = std::min(block, units);
    Prepare(block, unit_rows);
    for (int64_t unit = 0; unit < units; unit += block) {
      AddBlock(unit, std::min(block, units - unit), unit_rows, unit > 0);
    }
    Store();
  }

 private:
  int64_t taps() const { return taps_h_ * taps_w_; }
  // Registers' lanes over values, at least 1.
  double Waste(int64_t values) const {
    const int64_t width = call_.kernels().width;
    return static_cast<double>((values + width - 1) / width * width) / static_cast<double>(values);
  }

  void Prepare(int64_t block, int64_t unit_rows) {
    x_pixels_ = call_.Take<const float*>(block * unit_rows);
    dy_pixels_ = call_.Take<const float*>(block * unit_rows);
    x_group_ = call_.Take<const float*>(block * unit_rows);
    dy_group_ = call_.Take<const float*>(block * unit_rows);
    if (padded_) {
      const int64_t floats = block * image_pixels_ * g_.x_image.c;
      padded_x_ = call_.Take<float>(floats);
      std::fill_n(padded_x_, floats, 0.0f);
    }
    for (int64_t i = 0; i < taps_h_; ++i) {
      for (int64_t j = 0; j < taps_w_; ++j) {
        const int64_t offset = (i * row_pixels_ + j) * g_.x_image.c;
        if (g_.groups > 1 || j == 0) {
          x_segments_.push_back({offset, ins_});
        } else {
          x_segments_.back().length += ins_;
        }
      }
    }
    dy_segments_.push_back({0, outs_});
    panels_ = MakePanels(call_.kernels(), swapped_ ? ins_ : outs_);
    const int64_t size = outs_ * ins_ * taps();
    // With one group and nothing to turn, the sums are made at their place.
    in_place_ = swapped_ && !call_.context->accumulate;
    if (!in_place_) sums_ = call_.Take<float>(size * g_.groups);
  }

  // Adds the products of `count` units from `unit` on.
  void AddBlock(int64_t unit, int64_t count, int64_t unit_rows, bool accumulate) {
    const float* x = g_.x + (pixelwise_ ? unit : unit * g_.x_image.positions()) * g_.x_image.c;
    if (padded_) {
      PadImages(x, count, g_.x_image, g_.h, g_.w, padded_x_);
      x = padded_x_;
    }
    const float* dy = g_.dy + unit * unit_rows * g_.y_image.c;
    const int64_t pixels = count * unit_rows;
    for (int64_t i = 0; i < pixels; ++i) dy_pixels_[i] = dy + i * g_.y_image.c;
    if (pixelwise_) {
      for (int64_t i = 0; i < pixels; ++i) x_pixels_[i] = x + i * g_.x_image.c;
    } else {
      PointAtWindows(x, count);
    }
    // Tasks: a group's panel each.
    const int64_t panel_count = static_cast<int64_t>(panels_.size());
    for (int64_t g = 0; g < g_.groups; ++g) {
      const float** left = swapped_ ? dy_pixels_ : x_pixels_;
      const float** right = swapped_ ? x_pixels_ : dy_pixels_;
      if (g > 0) {
        for (int64_t i = 0; i < pixels; ++i) x_group_[i] = x_pixels_[i] + g * ins_;
        for (int64_t i = 0; i < pixels; ++i) dy_group_[i] = dy_pixels_[i] + g * outs_;
        left = swapped_ ? dy_group_ : x_group_;
        right = swapped_ ? x_group_ : dy_group_;
      }
      OuterProduct o;
      o.left = left;
      o.right = right;
      o.pixels = pixels;
      const std::vector<Segment>& segments = swapped_ ? dy_segments_ : x_segments_;
      o.segments = segments.data();
      o.segment_count = static_cast<int64_t>(segments.size());
      o.accumulate = accumulate;
      o.sums = (in_place_ ? g_.dweight : sums_) + g * outs_ * ins_ * taps();
      o.stride = swapped_ ? ins_ : outs_;
      ParallelFor(call_.machine, panel_count, [&](int, int64_t begin, int64_t end) {
        OuterProduct part = o;
        part.panels = panels_.data() + begin;
        part.panel_count = end - begin;
        call_.kernels().outer_product(part);
      });
    }
  }

  void PointAtWindows(const float* x, int64_t count) {
    const AxisPass& h = g_.h.passes[0];
    const AxisPass& w = g_.w.passes[0];
    const int64_t low_h = padded_ ? g_.h.low : 0, low_w = padded_ ? g_.w.low : 0;
    int64_t row = 0;
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t i = 0; i < h.count; ++i) {
        const int64_t from = n * image_pixels_ +
                             (h.source_begin + i * h.source_step - low_h) * row_pixels_ +
                             w.source_begin - low_w;
        for (int64_t j = 0; j < w.count; ++j, ++row) {
          x_pixels_[row] = x + (from + j * w.source_step) * g_.x_image.c;
        }
      }
    }
  }

  void Store() {
    if (in_place_) return;
    const int64_t size = outs_ * ins_ * taps();
    const bool accumulate = call_.context->accumulate;
    if (swapped_) {
      StoreGradient(call_.kernels(), sums_, size * g_.groups, accumulate, g_.dweight);
      return;
    }
    float* temporary = call_.Take<float>(16 * taps() * (outs_ + 1));
    for (int64_t g = 0; g < g_.groups; ++g) {
      StoreWeightGradient(call_.kernels(), sums_ + g * size, outs_, ins_, taps(), accumulate,
                          temporary, g_.dweight + g * size);
    }
  }

  const Call& call_;
  const WeightGradient& g_;
  int64_t ins_ = 0, outs_ = 0;  // of a group
  int64_t taps_h_ = 1, taps_w_ = 1;
  bool padded_ = false, pixelwise_ = false, swapped_ = false, in_place_ = false;
  int64_t row_pixels_ = 0, image_pixels_ = 0;
  std::vector<Segment> x_segments_, dy_segments_;
  std::vector<Panel> panels_;
  const float** x_pixels_ = nullptr;
  const float** dy_pixels_ = nullptr;
  const float** x_group_ = nullptr;
  const float** dy_group_ = nullptr;
  float* padded_x_ = nullptr;
  float* sums_ = nullptr;
};

}  // namespace

void RunWeightGradient(const Call& call, const WeightGradient& gradient) {
  Runner(call, gradient).Run();
}

}  // namespace runnel::fp32
