#include "kernels/backends/cpu/fp32/conv/weight_gradient.h"

#include <algorithm>

#include "kernels/backends/cpu/fp32/packing.h"

namespace runnel::fp32 {
namespace {

// With fewer input channels a tap's rows do not fill a tile, which costs more than the padding.
constexpr int64_t kSkippedChannels = 16;

// Registers' lanes over values, at least 1.
double Waste(const Kernels& kernels, int64_t values) {
  const int64_t lanes = (values + kernels.width - 1) / kernels.width * kernels.width;
  return static_cast<double>(lanes) / static_cast<double>(values);
}

// A 1x1 gradient may have either side in registers: the one that fills them better; with the inputs
// there the sums lie as the weight does.
bool IsSwapped(const Kernels& kernels, const WeightGradient& gradient) {
  return gradient.taps() == 1 && Waste(kernels, gradient.ins()) <= Waste(kernels, gradient.outs());
}

bool SkipsPadding(const WeightGradient& gradient, bool swapped) {
  return gradient.padded() && !swapped && gradient.ins() >= kSkippedChannels &&
         gradient.taps() <= 64;
}

}  // namespace

BlockPlan BlocksOf(const WeightGradient& gradient) {
  const bool rows = gradient.pixelwise();
  int64_t floats = gradient.x_image.c + gradient.y_image.c;
  if (!rows) {
    const int64_t pixels =
        gradient.padded() ? (gradient.h.high - gradient.h.low) * (gradient.w.high - gradient.w.low)
                          : gradient.x_image.positions();
    floats = pixels * gradient.x_image.c + gradient.y_image.positions() * gradient.y_image.c;
  }
  return BlockPlan::Of(rows ? gradient.y_image.rows() : gradient.y_image.n, floats, rows,
                       gradient.x_image);
}

PixelPairs::PixelPairs(const Call& call, const WeightGradient& gradient, bool pixelwise, bool pads,
                       int64_t block)
    : g_(gradient),
      pixelwise_(pixelwise),
      pads_(pads),
      row_pixels_(pads ? g_.w.high - g_.w.low : g_.x_image.w),
      image_pixels_(row_pixels_ * (pads ? g_.h.high - g_.h.low : g_.x_image.h)) {
  for (const float*** pointers : {&x_pixels_, &dy_pixels_, &x_group_, &dy_group_}) {
    *pointers = call.Take<const float*>(block * unit_y());
  }
  if (!pads_) return;
  const int64_t floats = block * image_pixels_ * g_.x_image.c;
  padded_x_ = call.Take<float>(floats);
  std::fill_n(padded_x_, floats, 0.0f);
}

void PixelPairs::Point(const float* x, const float* dy, int64_t dy_begin, int64_t count) {
  if (pads_) {
    PadImages(x, count, g_.x_image, g_.h, g_.w, padded_x_);
    x = padded_x_;
  }
  const int64_t pixels = count * unit_y();
  for (int64_t i = 0; i < pixels; ++i) dy_pixels_[i] = dy + i * g_.y_image.c + dy_begin;
  if (pixelwise_) {
    for (int64_t i = 0; i < pixels; ++i) x_pixels_[i] = x + i * g_.x_image.c;
  } else {
    PointAtWindows(x, count);
  }
}

void PixelPairs::PointAtWindows(const float* x, int64_t count) {
  const AxisPass& h = g_.h.passes[0];
  const AxisPass& w = g_.w.passes[0];
  const int64_t low_h = pads_ ? g_.h.low : 0, low_w = pads_ ? g_.w.low : 0;
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

void PixelPairs::SetGroup(int64_t group, int64_t pixels) {
  x_ = x_pixels_;
  dy_ = dy_pixels_;
  if (group == 0) return;
  for (int64_t i = 0; i < pixels; ++i) x_group_[i] = x_pixels_[i] + group * g_.ins();
  for (int64_t i = 0; i < pixels; ++i) dy_group_[i] = dy_pixels_[i] + group * g_.outs();
  x_ = x_group_;
  dy_ = dy_group_;
}

GradientSums::GradientSums(const Call& call, const WeightGradient& gradient, bool swapped,
                           Packing packing)
    : call_(call),
      g_(gradient),
      swapped_(swapped),
      in_place_(swapped && !call.context->accumulate) {
  const int64_t sum_rows = g_.ins() * g_.taps();
  const std::vector<Panel> panels = MakePanels(call_.kernels(), swapped_ ? g_.ins() : g_.outs());
  runs_ = CutPanels(call_.kernels(), panels, sum_rows,
                    swapped_ || g_.groups > 1 ? Packing::kWhole : packing);
  int64_t columns = 0;
  for (const PanelRun& run : runs_) columns = std::max(columns, run.columns);
  if (!in_place_) {
    sums_ = call_.Take<float>(columns * (swapped_ ? g_.outs() : sum_rows) * g_.groups);
  }
  if (!swapped_) temporary_ = call_.Take<float>(16 * g_.taps() * (columns + 1));
  Begin(0);
}

int64_t GradientSums::group_size() const { return g_.outs() * g_.ins() * g_.taps(); }

void GradientSums::Begin(int64_t run) {
  run_ = &runs_[run];
  any_ = false;
}

float* GradientSums::OfGroup(int64_t group) const {
  return (in_place_ ? g_.dweight : sums_) + group * group_size();
}

void GradientSums::Store() {
  if (in_place_) return;
  const int64_t size = group_size();
  const bool accumulate = call_.context->accumulate;
  if (swapped_) {
    StoreGradient(call_.kernels(), sums_, size * g_.groups, accumulate, g_.dweight);
    return;
  }
  const int64_t first = run_->begin * g_.ins() * g_.taps();
  for (int64_t g = 0; g < g_.groups; ++g) {
    StoreWeightGradient(call_.kernels(), sums_ + g * size, run_->columns, g_.ins(), g_.taps(),
                        accumulate, temporary_, g_.dweight + g * size + first);
  }
}

WeightGradientRunner::WeightGradientRunner(const Call& call, const WeightGradient& gradient,
                                           bool pixelwise, int64_t block, Packing packing)
    : call_(call),
      g_(gradient),
      swapped_(IsSwapped(call.kernels(), gradient)),
      skips_(SkipsPadding(gradient, swapped_)),
      pairs_(call, gradient, pixelwise, gradient.padded() && !skips_, block),
      sums_(call, gradient, swapped_, packing) {
  CutRows();
  if (skips_) MarkOutside(block);
}

// The rows of the sums as segments of a window.
void WeightGradientRunner::CutRows() {
  dy_segments_.push_back({0, g_.outs()});
  const AxisPass &h = g_.h.passes[0], &w = g_.w.passes[0];
  for (int64_t i = 0; i < h.taps; ++i) {
    for (int64_t j = 0; j < w.taps; ++j) {
      if (g_.groups > 1 || skips_ || j == 0 || w.source_gap > 1) {
        const int64_t pixel = i * h.source_gap * pairs_.row_pixels() + j * w.source_gap;
        x_segments_.push_back({pixel * g_.x_image.c, g_.ins()});
      } else {
        x_segments_.back().length += g_.ins();
      }
    }
  }
}

// Which taps of each output's window lie in the padding. All images are alike.
void WeightGradientRunner::MarkOutside(int64_t block) {
  const AxisPass &h = g_.h.passes[0], &w = g_.w.passes[0];
  const int64_t positions = g_.y_image.positions();
  outside_ = call_.Take<uint64_t>(block * positions);
  std::fill_n(outside_, positions, ~uint64_t{0});
  for (const AxisPart& part_h : PartsInside(h, g_.x_image.h)) {
    for (const AxisPart& part_w : PartsInside(w, g_.x_image.w)) {
      uint64_t inside = 0;
      for (int64_t i = part_h.tap; i < part_h.tap + part_h.taps; ++i) {
        for (int64_t j = part_w.tap; j < part_w.tap + part_w.taps; ++j) {
          inside |= uint64_t{1} << (i * w.taps + j);
        }
      }
      for (int64_t y = part_h.begin; y < part_h.begin + part_h.count; ++y) {
        std::fill_n(outside_ + y * w.count + part_w.begin, part_w.count, ~inside);
      }
    }
  }
  for (int64_t n = 1; n < block; ++n) std::copy_n(outside_, positions, outside_ + n * positions);
}

void WeightGradientRunner::Add(const float* x, const float* dy, int64_t count) {
  pairs_.Point(x, dy, sums_.run().begin, count);
  for (int64_t group = 0; group < g_.groups; ++group) AddGroup(group, count * unit_y());
  sums_.SetAny();
}

void WeightGradientRunner::AddGroup(int64_t group, int64_t pixels) {
  pairs_.SetGroup(group, pixels);
  const std::vector<Segment>& segments = swapped_ ? dy_segments_ : x_segments_;
  const PanelRun& run = sums_.run();
  OuterProduct o;
  o.left = swapped_ ? pairs_.dy() : pairs_.x();
  o.right = swapped_ ? pairs_.x() : pairs_.dy();
  o.pixels = pixels;
  o.segments = segments.data();
  o.segment_count = static_cast<int64_t>(segments.size());
  o.outside = outside_;
  o.accumulate = sums_.any();
  o.sums = sums_.OfGroup(group);
  o.stride = run.columns;
  ParallelFor(call_.machine, static_cast<int64_t>(run.panels.size()),
              [&](int, int64_t begin, int64_t end) {
                OuterProduct part = o;
                part.panels = run.panels.data() + begin;
                part.panel_count = end - begin;
                call_.kernels().outer_product(part);
              });
}

void RunWeightGradient(const Call& call, const WeightGradient& gradient, const RowSource& x,
                       const RowSource& dy) {
  const bool pixelwise = gradient.pixelwise();
  const BlockPlan plan = BlocksOf(gradient);
  WeightGradientRunner runner(call, gradient, pixelwise, plan.block, Packing::kByRuns);
  float* x_made = call.Take<float>(x.made() ? plan.block * runner.unit_x() * x.channels : 0);
  float* dy_made = call.Take<float>(dy.made() ? plan.block * runner.unit_y() * dy.channels : 0);
  for (int64_t run = 0; run < runner.runs(); ++run) {
    runner.Begin(run);
    for (int64_t i = 0; i < plan.blocks(); ++i) {
      const int64_t unit = i * plan.block, count = plan.count(i);
      runner.Add(x.Rows(call.kernels(), unit * runner.unit_x(), count * runner.unit_x(), x_made),
                 dy.Rows(call.kernels(), unit * runner.unit_y(), count * runner.unit_y(), dy_made),
                 count);
    }
    runner.Store();
  }
}

}  // namespace runnel::fp32
