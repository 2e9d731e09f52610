#include "kernels/backends/cpu/fp32/conv/depthwise.h"

#include <algorithm>

#include "kernels/backends/cpu/fp32/summation_rule.h"
#include "kernels/backends/cpu/kept_weights.h"

namespace runnel::fp32 {
namespace {

// An image of the source into a padded one.
void PadImage(const Call& call, const RowSource& source, int64_t index, const Image& image,
              const Axis& h, const Axis& w, float* buffer, float* padded) {
  const int64_t first = index * image.positions();
  const bool whole_rows = w.low <= 0 && w.high >= image.w;
  if (!source.made() || source.place != nullptr || !whole_rows) {
    const float* rows = source.Rows(call.kernels(), first, image.positions(), buffer);
    PadImages(rows, 1, image, h, w, padded);
    return;
  }
  const int64_t top = std::max<int64_t>(0, h.low), bottom = std::min(image.h, h.high);
  for (int64_t row = top; row < bottom; ++row) {
    source.Make(call.kernels(), first + row * image.w, image.w,
                padded + ((row - h.low) * (w.high - w.low) - w.low) * image.c);
  }
}

}  // namespace

DepthwiseRunner::DepthwiseRunner(const Call& call, const ConvProduct& conv)
    : call_(call), conv_(conv) {
  for (const AxisPass& h : conv_.h.passes) {
    for (const AxisPass& w : conv_.w.passes) passes_.push_back({&h, &w, nullptr});
  }
  for (Pass& pass : passes_) pass.weight = PassWeights(*pass.h, *pass.w);
  padded_ = call.Take<float>(call.machine.workers() * padded_floats());
  std::fill_n(padded_, call.machine.workers() * padded_floats(), 0.0f);
}

int64_t DepthwiseRunner::padded_rows() const {
  if (!slides()) return conv_.h.high - conv_.h.low;
  const AxisPass& h = *passes_[0].h;
  return h.taps == 0 ? 0 : (h.taps - 1) * h.source_gap + 1;
}

const float* DepthwiseRunner::PassWeights(const AxisPass& h, const AxisPass& w) const {
  const int64_t floats = h.taps * w.taps * conv_.source.c;
  if (call_.kept != nullptr && !conv_.backward && slides()) {
    const float* kept = call_.kept->Of(*call_.inputs[1].buffer, floats,
                                       [&](float* out) { FillWeights(h, w, out); });
    if (kept != nullptr) return kept;
  }
  float* out = call_.Take<float>(floats);
  FillWeights(h, w, out);
  return out;
}

void DepthwiseRunner::FillWeights(const AxisPass& h, const AxisPass& w, float* out) const {
  const int64_t channels = conv_.source.c;
  for (int64_t i = 0; i < h.taps; ++i) {
    for (int64_t j = 0; j < w.taps; ++j) {
      const int64_t tap =
          (h.tap_begin + i * h.tap_step) * conv_.kernel_w + w.tap_begin + j * w.tap_step;
      float* row = out + (i * w.taps + j) * channels;
      for (int64_t c = 0; c < channels; ++c) row[c] = conv_.weight[c * conv_.tap_count + tap];
    }
  }
}

void DepthwiseRunner::Run(int worker, const float* rows, int64_t image) const {
  float* padded = padded_ + worker * padded_floats();
  if (!slides()) {
    PadImages(rows, 1, conv_.source, conv_.h, conv_.w, padded);
    return RunPadded(padded, image);
  }
  const Image& from = conv_.source;
  const int64_t left = std::max<int64_t>(0, conv_.w.low), right = std::min(from.w, conv_.w.high);
  Slide(padded, image, [&](int64_t row, float* to) {
    if (left < right)
      std::copy_n(rows + (row * from.w + left) * from.c, (right - left) * from.c, to);
  });
}

void DepthwiseRunner::Run(int worker, const RowSource& source, int64_t image, float* buffer) const {
  float* padded = padded_ + worker * padded_floats();
  const Image& from = conv_.source;
  const int64_t first = image * from.positions();
  const bool whole_rows = conv_.w.low <= 0 && conv_.w.high >= from.w;
  if (!slides()) {
    PadImage(call_, source, image, from, conv_.h, conv_.w, buffer, padded);
    RunPadded(padded, image);
  } else if (source.made() && source.place == nullptr && whole_rows) {
    Slide(padded, image, [&](int64_t row, float* to) {
      source.Make(call_.kernels(), first + row * from.w, from.w, to);
    });
  } else {
    Run(worker, source.Rows(call_.kernels(), first, from.positions(), buffer), image);
  }
}

DepthwiseRow DepthwiseRunner::RowOf(const Pass& pass, const float** rows) const {
  DepthwiseRow row;
  row.rows = rows;
  row.taps_h = pass.h->taps;
  row.taps_w = pass.w->taps;
  row.stride = pass.w->source_step;
  row.gap = pass.w->source_gap;
  row.weight = pass.weight;
  row.bias = conv_.bias;
  row.finish = conv_.finish;
  row.channels = conv_.source.c;
  row.columns = pass.w->count;
  row.y_step = pass.w->target_step * conv_.target.c;
  return row;
}

void DepthwiseRunner::Slide(float* padded, int64_t image,
                            absl::FunctionRef<void(int64_t, float*)> make) const {
  const Pass& pass = passes_[0];
  const AxisPass &h = *pass.h, &w = *pass.w;
  const int64_t held = padded_rows(), channels = conv_.source.c;
  const float* const zeros = padded + held * row_floats();
  const int64_t margin = std::max<int64_t>(0, -conv_.w.low) * channels;
  const int64_t left = (w.source_begin - conv_.w.low) * channels;
  std::vector<const float*> rows(static_cast<size_t>(h.taps + 1));
  DepthwiseRow row = RowOf(pass, rows.data());
  float* y = conv_.y + image * conv_.target.positions() * conv_.target.c;
  int64_t next = 0;  // the first row of the image that is not there yet
  for (int64_t i = 0; i < h.count; ++i) {
    const int64_t top = h.source_begin + i * h.source_step;
    const int64_t end = std::min(conv_.source.h, top + held);
    for (next = std::max(next, top); next < end; ++next)
      make(next, padded + next % held * row_floats() + margin);
    for (int64_t t = 0; t < h.taps; ++t) {
      const int64_t at = top + t * h.source_gap;
      const bool is_inside = at >= 0 && at < conv_.source.h;
      rows[static_cast<size_t>(t)] = (is_inside ? padded + at % held * row_floats() : zeros) + left;
    }
    row.y = y + ((h.target_begin + i * h.target_step) * conv_.target.w + w.target_begin) *
                    conv_.target.c;
    call_.kernels().depthwise_row(row);
  }
}

void DepthwiseRunner::RunPadded(const float* padded, int64_t image) const {
  float* y = conv_.y + image * conv_.target.positions() * conv_.target.c;
  std::vector<const float*> rows(static_cast<size_t>(conv_.h.high - conv_.h.low + 1));
  for (const Pass& pass : passes_) {
    DepthwiseRow row = RowOf(pass, rows.data());
    const int64_t left = (pass.w->source_begin - conv_.w.low) * conv_.source.c;
    for (int64_t i = 0; i < pass.h->count; ++i) {
      const int64_t top = pass.h->source_begin + i * pass.h->source_step - conv_.h.low;
      for (int64_t t = 0; t < pass.h->taps; ++t)
        rows[t] = padded + (top + t * pass.h->source_gap) * row_floats() + left;
      const int64_t target =
          (pass.h->target_begin + i * pass.h->target_step) * conv_.target.w + pass.w->target_begin;
      row.y = y + target * conv_.target.c;
      call_.kernels().depthwise_row(row);
    }
  }
}

BlockPlan DepthwiseBlocks(const ConvProduct& conv) {
  const int64_t images = std::max<int64_t>(1, kPieceRows / conv.target.positions());
  return {conv.source.n, std::min(images, conv.source.n)};
}

void RunDepthwise(const Call& call, const ConvProduct& conv, const RowSource& source,
                  absl::FunctionRef<void(int64_t, int64_t)> after) {
  const BlockPlan plan = DepthwiseBlocks(conv);
  const DepthwiseRunner runner(call, conv);
  const int64_t floats = source.made() ? conv.source.positions() * conv.source.c : 0;
  float* buffer = call.Take<float>(floats * call.machine.workers());
  ParallelFor(call.machine, plan.blocks(), [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t n = i * plan.block; n < i * plan.block + plan.count(i); ++n) {
        runner.Run(worker, source, n, buffer + worker * floats);
      }
      after(i * plan.block * conv.target.positions(), plan.count(i) * conv.target.positions());
    }
  });
}

DepthwiseGradientRunner::DepthwiseGradientRunner(const Call& call, const WeightGradient& gradient)
    : call_(call), g_(gradient), channels_(g_.x_image.c), taps_(g_.taps()) {
  const int64_t floats = (g_.h.high - g_.h.low) * (g_.w.high - g_.w.low) * channels_;
  padded_ = call.Take<float>(floats);
  std::fill_n(padded_, floats, 0.0f);
  part_ = call.Take<float>(taps_ * channels_);
  total_ = call.Take<double>(taps_ * channels_);
  std::fill_n(part_, taps_ * channels_, 0.0f);
  std::fill_n(total_, taps_ * channels_, 0.0);
}

void DepthwiseGradientRunner::Add(const RowSource& x, const float* dy, int64_t image,
                                  float* buffer) {
  PadImage(call_, x, image, g_.x_image, g_.h, g_.w, buffer, padded_);
  const DepthwiseOuter d = {.dy = dy,
                            .x = padded_,
                            .x_row = (g_.w.high - g_.w.low) * channels_,
                            .rows = g_.y_image.h,
                            .columns = g_.y_image.w,
                            .taps_h = g_.h.passes[0].taps,
                            .taps_w = g_.w.passes[0].taps,
                            .stride_h = g_.h.passes[0].source_step,
                            .stride_w = g_.w.passes[0].source_step,
                            .gap_h = g_.h.passes[0].source_gap,
                            .gap_w = g_.w.passes[0].source_gap,
                            .channels = channels_,
                            .sums = part_};
  const int64_t unit = call_.kernels().width;
  ParallelFor(call_.machine, (channels_ + unit - 1) / unit, [&](int, int64_t begin, int64_t end) {
    DepthwiseOuter mine = d;
    mine.channel_begin = begin * unit;
    mine.channel_end = std::min(channels_, end * unit);
    call_.kernels().depthwise_outer(mine);
  });
  if (++images_ * g_.y_image.positions() >= kDepthwisePixels) Flush();
}

void DepthwiseGradientRunner::Flush() {
  for (int64_t i = 0; i < taps_ * channels_; ++i) total_[i] += part_[i];
  std::fill_n(part_, taps_ * channels_, 0.0f);
  images_ = 0;
}

void DepthwiseGradientRunner::Store() {
  Flush();
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t t = 0; t < taps_; ++t) {
      float& target = g_.dweight[c * taps_ + t];
      const float value = static_cast<float>(total_[t * channels_ + c]);
      target = call_.context->accumulate ? target + value : value;
    }
  }
}

}  // namespace runnel::fp32
