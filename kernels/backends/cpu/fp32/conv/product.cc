#include "kernels/backends/cpu/fp32/conv/product.h"

#include <algorithm>

#include "kernels/backends/cpu/kept_weights.h"

namespace runnel::fp32 {
namespace {

// Pixels of a band at least: packed weights are read once for each band.
constexpr int64_t kLeastBand = 96;

}  // namespace

BlockPlan BlockPlan::Of(int64_t units, int64_t unit_floats, bool rows, const Image& summed) {
  const int64_t wanted = std::max<int64_t>(1, kBlockFloats / std::max<int64_t>(1, unit_floats));
  const int64_t multiple =
      rows ? SumUnitRows(summed) : std::max<int64_t>(1, kPieceRows / summed.positions());
  return {units, std::min(units, std::max(multiple, wanted / multiple * multiple))};
}

BlockPlan BlockPlan::Of(const ConvProduct& conv) {
  const bool pixelwise = conv.pixelwise();
  return Of(pixelwise ? conv.source.rows() : conv.source.n, UnitFloats(conv, pixelwise), pixelwise,
            conv.target);
}

int64_t UnitFloats(const ConvProduct& conv, bool pixelwise) {
  if (pixelwise) return conv.source.c + conv.target.c;
  const int64_t pixels = conv.padded() ? (conv.h.high - conv.h.low) * (conv.w.high - conv.w.low)
                                       : conv.source.positions();
  return pixels * conv.source.c + conv.target.positions() * conv.target.c;
}

ConvRunner::ConvRunner(const Call& call, const ConvProduct& conv, bool pixelwise, int64_t block,
                       Packing packing)
    : call_(call), conv_(conv), pixelwise_(pixelwise) {
  unit_source_ = pixelwise ? 1 : conv.source.positions();
  unit_target_ = pixelwise ? 1 : conv.target.positions();
  source_channels_ = conv.source.c / conv.groups;
  target_channels_ = conv.target.c / conv.groups;
  int64_t depth = 0;
  for (const AxisPass& h : conv_.h.passes) {
    for (const AxisPass& w : conv_.w.passes) {
      for (int64_t g = 0; g < conv_.groups; ++g) passes_.push_back(MakePass(h, w, g));
      depth += passes_.back().depth * conv_.groups;
    }
  }
  runs_ = CutPanels(call.kernels(), MakePanels(call.kernels(), target_channels_), depth, packing);
  for (const PanelRun& run : runs_)
    width_ = std::max(width_, PackedWidth(call.kernels(), run.panels));
  temporary_ = call_.Take<float>(16 * conv_.tap_count * 64);
  if (call.kept != nullptr && !conv.backward) {
    const int64_t floats = packed_floats();
    kept_ = call.kept->Of(*call.inputs[1].buffer, runs() * floats, [&](float* to) {
      for (int64_t run = 0; run < runs(); ++run) PackRun(run, to + run * floats);
    });
  }
  if (kept_ == nullptr) {
    for (Pass& pass : passes_) pass.packed = call_.Take<float>(pass.depth * width_);
  }
  Pack(0);
  MakeBuffers(block);
}

int64_t ConvRunner::packed_floats() const {
  int64_t floats = 0;
  for (const Pass& pass : passes_) floats += pass.depth * width_;
  return floats;
}

void ConvRunner::PackRun(int64_t run, float* packed) {
  run_ = &runs_[run];
  for (Pass& pass : passes_) {
    pass.packed = packed;
    packed += pass.depth * width_;
    PackPass(pass);
  }
}

ConvRunner::Pass ConvRunner::MakePass(const AxisPass& h, const AxisPass& w, int64_t group) const {
  Pass pass = {&h, &w, group};
  for (int64_t i = 0; i < h.taps; ++i) {
    for (int64_t j = 0; j < w.taps; ++j) {
      pass.taps.push_back((h.tap_begin + i * h.tap_step) * conv_.kernel_w + w.tap_begin +
                          j * w.tap_step);
    }
  }
  pass.depth = static_cast<int64_t>(pass.taps.size()) * source_channels_;
  for (const AxisPart& part_h : PartsInside(h, conv_.source.h)) {
    for (const AxisPart& part_w : PartsInside(w, conv_.source.w)) {
      pass.parts.push_back(MakePart(h, w, part_h, part_w));
    }
  }
  return pass;
}

// Segments count from the first pixel that is read.
ConvRunner::Part ConvRunner::MakePart(const AxisPass& h, const AxisPass& w, const AxisPart& part_h,
                                      const AxisPart& part_w) const {
  Part part = {part_h, part_w, {}};
  // Without groups, neighbouring pixels' channels are one run.
  const int64_t pixels = conv_.groups > 1 || w.source_gap > 1 ? 1 : part_w.taps;
  for (int64_t i = 0; i < part_h.taps; ++i) {
    for (int64_t j = 0; j < part_w.taps; j += pixels) {
      const int64_t tap = (part_h.tap + i) * w.taps + part_w.tap + j;
      const int64_t pixel = i * h.source_gap * conv_.source.w + j * w.source_gap;
      part.segments.push_back({.offset = pixel * conv_.source.c,
                               .length = pixels * source_channels_,
                               .depth = tap * source_channels_});
    }
  }
  return part;
}

void ConvRunner::Pack(int64_t run) {
  run_ = &runs_[run];
  float* kept = kept_ == nullptr ? nullptr : kept_ + run * packed_floats();
  for (Pass& pass : passes_) {
    if (kept == nullptr) {
      PackPass(pass);
    } else {
      pass.packed = kept;
      kept += pass.depth * width_;
    }
  }
}

void ConvRunner::PackPass(const Pass& pass) {
  const Kernels& kernels = call_.kernels();
  const int64_t taps = conv_.tap_count;
  const float* weight = conv_.weight + pass.group * source_channels_ * target_channels_ * taps;
  if (conv_.backward) {
    PackBackward(kernels, weight + run_->begin * taps, source_channels_, target_channels_, taps,
                 pass.taps, run_->panels, pass.packed);
  } else {
    PackForward(kernels, weight + run_->begin * source_channels_ * taps, source_channels_, taps,
                pass.taps, run_->panels, temporary_, pass.packed);
  }
}

void ConvRunner::MakeBuffers(int64_t block) {
  size_t parts = 0;
  for (const Pass& pass : passes_) parts = std::max(parts, pass.parts.size());
  for (int i = 0; i < call_.machine.workers(); ++i) {
    Buffers b = {};
    b.rows = call_.Take<const float*>(block * unit_target_);
    b.targets = call_.Take<float*>(block * unit_target_);
    b.groups = call_.Take<ProductRows>(static_cast<int64_t>(parts));
    b.band = call_.Take<ProductRows>(static_cast<int64_t>(parts));
    buffers_.push_back(b);
  }
}

void ConvRunner::Run(int worker, const float* rows, int64_t unit, int64_t count) const {
  const Buffers& b = buffers_[worker];
  float* y = conv_.y + unit * unit_target_ * conv_.target.c + run_->begin;
  for (const Pass& pass : passes_) {
    PointAt(pass, rows, count, y, b);
    RunPass(pass, count, b);
  }
}

void ConvRunner::RunPass(const Pass& pass, int64_t count, const Buffers& b) const {
  const int64_t column = pass.group * target_channels_ + run_->begin;
  Product product;
  product.groups = b.groups;
  product.group_count = static_cast<int64_t>(pass.parts.size());
  product.depth = pass.depth;
  product.b = pass.packed;
  product.panels = run_->panels.data();
  product.panel_count = static_cast<int64_t>(run_->panels.size());
  product.bias = conv_.bias == nullptr ? nullptr : conv_.bias + column;
  product.finish = conv_.finish;
  product.finish_column = column;
  const int64_t band = BandRows(count);
  if (band == 0 || band >= pass.h->count) return call_.kernels().product(product);
  product.groups = b.band;
  for (int64_t row = 0; row < pass.h->count; row += band) {
    product.group_count = CutBand(pass, row, std::min(pass.h->count, row + band), b);
    call_.kernels().product(product);
  }
}

int64_t ConvRunner::BandRows(int64_t count) const {
  if (pixelwise_ || count > 1) return 0;
  const int64_t floats = unit_source_ * conv_.source.c + unit_target_ * conv_.target.c;
  const int64_t rows = kBlockFloats * conv_.target.h / floats;
  return std::max({int64_t{1}, rows, kLeastBand / conv_.target.w});
}

int64_t ConvRunner::CutBand(const Pass& pass, int64_t begin, int64_t end, const Buffers& b) {
  int64_t count = 0;
  for (size_t i = 0; i < pass.parts.size(); ++i) {
    const AxisPart &h = pass.parts[i].h, &w = pass.parts[i].w;
    const int64_t first = std::max(begin, h.begin), last = std::min(end, h.begin + h.count);
    if (first >= last) continue;
    ProductRows& rows = b.band[count++] = b.groups[i];
    rows.a += (first - h.begin) * w.count;
    rows.c += (first - h.begin) * w.count;
    rows.rows = (last - first) * w.count;
  }
  return count;
}

// Fills in the rows' pointers and the groups of rows, one a part.
void ConvRunner::PointAt(const Pass& pass, const float* x, int64_t count, float* y,
                         const Buffers& b) const {
  x += pass.group * source_channels_;
  y += pass.group * target_channels_;
  int64_t row = 0;
  for (size_t i = 0; i < pass.parts.size(); ++i) {
    const Part& part = pass.parts[i];
    ProductRows& group = b.groups[i];
    group.a = b.rows + row;
    group.c = b.targets + row;
    group.segments = part.segments.data();
    group.segment_count = static_cast<int64_t>(part.segments.size());
    group.rows = PointAtPart(pass, part, x, count, y, b.rows + row, b.targets + row);
    row += group.rows;
  }
}

// Returns how many rows there are.
int64_t ConvRunner::PointAtPart(const Pass& pass, const Part& part, const float* x, int64_t count,
                                float* y, const float** rows, float** targets) const {
  if (pixelwise_) {
    for (int64_t i = 0; i < count; ++i) {
      rows[i] = x + i * conv_.source.c;
      targets[i] = y + i * conv_.target.c;
    }
    return count;
  }
  const AxisPass &h = *pass.h, &w = *pass.w;
  const bool reads = !part.segments.empty();
  const int64_t left = w.source_begin + part.w.begin * w.source_step + part.w.tap * w.source_gap;
  int64_t row = 0;
  for (int64_t n = 0; n < count; ++n) {
    for (int64_t i = part.h.begin; i < part.h.begin + part.h.count; ++i) {
      const int64_t top =
          n * conv_.source.h + h.source_begin + i * h.source_step + part.h.tap * h.source_gap;
      const int64_t from = reads ? top * conv_.source.w + left : 0;
      const int64_t step = reads ? w.source_step : 0;
      const int64_t to =
          (n * conv_.target.h + h.target_begin + i * h.target_step) * conv_.target.w +
          w.target_begin + part.w.begin * w.target_step;
      for (int64_t j = 0; j < part.w.count; ++j, ++row) {
        rows[row] = x + (from + j * step) * conv_.source.c;
        targets[row] = y + (to + j * w.target_step) * conv_.target.c;
      }
    }
  }
  return row;
}

void RunConvProduct(const Call& call, const ConvProduct& conv, const RowSource& source,
                    absl::FunctionRef<void(int64_t, int64_t)> after) {
  const bool pixelwise = conv.pixelwise();
  const BlockPlan plan = BlockPlan::Of(conv);
  ConvRunner runner(call, conv, pixelwise, plan.block, Packing::kByRuns);
  const int64_t made_floats = source.made() && source.place == nullptr
                                  ? plan.block * runner.unit_source() * conv.source.c
                                  : 0;
  float* made = call.Take<float>(made_floats * call.machine.workers());
  for (int64_t run = 0; run < runner.runs(); ++run) {
    if (run > 0) runner.Pack(run);
    const bool last = run + 1 == runner.runs();
    ParallelFor(call.machine, plan.blocks(), [&](int worker, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t unit = i * plan.block, count = plan.count(i);
        const float* rows = source.Rows(call.kernels(), unit * runner.unit_source(),
                                        count * runner.unit_source(), made + worker * made_floats);
        runner.Run(worker, rows, unit, count);
        if (last) after(unit * runner.unit_target(), count * runner.unit_target());
      }
    });
  }
}

void PadImages(const float* x, int64_t count, const Image& image, const Axis& h, const Axis& w,
               float* padded) {
  const int64_t row_pixels = w.high - w.low;
  const int64_t top = std::max<int64_t>(0, h.low), bottom = std::min(image.h, h.high);
  const int64_t left = std::max<int64_t>(0, w.low), right = std::min(image.w, w.high);
  if (left >= right) return;
  for (int64_t n = 0; n < count; ++n) {
    const float* from = x + n * image.positions() * image.c;
    float* to = padded + n * (h.high - h.low) * row_pixels * image.c;
    for (int64_t row = top; row < bottom; ++row) {
      std::copy_n(from + (row * image.w + left) * image.c, (right - left) * image.c,
                  to + ((row - h.low) * row_pixels + left - w.low) * image.c);
    }
  }
}

}  // namespace runnel::fp32
