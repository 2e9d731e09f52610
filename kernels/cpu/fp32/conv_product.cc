#include "kernels/cpu/fp32/conv_product.h"

#include <algorithm>
#include <vector>

namespace runnel::fp32 {
namespace {

constexpr int64_t kBlockFloats = 1 << 17;  // of source and target: they stay in the second cache
constexpr int64_t kRowUnit = 64;

// A combination of one pass along each axis, for one group of channels.
struct Pass {
  const AxisPass* h = nullptr;
  const AxisPass* w = nullptr;
  int64_t group = 0;
  int64_t depth = 0;
  std::vector<Segment> segments;
  const float* packed = nullptr;
};

class Runner {
 public:
  Runner(const Call& call, const ConvProduct& conv) : call_(call), conv_(conv) {
    source_channels_ = conv.source.c / conv.groups;
    target_channels_ = conv.target.c / conv.groups;
    panels_ = MakePanels(call.kernels(), target_channels_);
    padded_ = !conv.h.inside() || !conv.w.inside();
    pixelwise_ = !padded_ && conv.tap_count == 1 && conv.source.rows() == conv.target.rows();
    low_h_ = padded_ ? conv.h.low : 0;
    low_w_ = padded_ ? conv.w.low : 0;
    row_pixels_ = padded_ ? conv.w.high - conv.w.low : conv.source.w;
    image_pixels_ = row_pixels_ * (padded_ ? conv.h.high - conv.h.low : conv.source.h);
  }

  void Run() {
    MakePasses();
    const int64_t unit_source = pixelwise_ ? 1 : conv_.source.positions();
    const int64_t unit_target = pixelwise_ ? 1 : conv_.target.positions();
    const int64_t units = pixelwise_ ? conv_.source.rows() : conv_.source.n;
    const int64_t unit_floats =
        (pixelwise_ ? 1 : image_pixels_) * conv_.source.c + unit_target * conv_.target.c;
    int64_t block = std::max<int64_t>(1, kBlockFloats / unit_floats);
    if (pixelwise_) block = std::max(kRowUnit, block / kRowUnit * kRowUnit);
    block = std::min(block, units);
    MakeBuffers(block, unit_target);
    const int64_t blocks = (units + block - 1) / block;
    ParallelFor(call_.machine, blocks, [&](int worker, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t unit = i * block, count = std::min(block, units - unit);
        if (conv_.before) conv_.before(unit * unit_source, count * unit_source);
        RunBlock(worker, unit * unit_source * conv_.source.c, count,
                 conv_.y + unit * unit_target * conv_.target.c);
        if (conv_.after) conv_.after(unit * unit_target, count * unit_target);
      }
    });
  }

 private:
  void MakePasses() {
    float* temporary = call_.Take<float>(16 * conv_.tap_count * 64);
    for (const AxisPass& h : conv_.h.passes) {
      for (const AxisPass& w : conv_.w.passes) {
        for (int64_t g = 0; g < conv_.groups; ++g) passes_.push_back(MakePass(h, w, g, temporary));
      }
    }
  }

  Pass MakePass(const AxisPass& h, const AxisPass& w, int64_t group, float* temporary) {
    Pass pass = {&h, &w, group};
    Taps taps;
    for (int64_t i = 0; i < h.taps; ++i) {
      for (int64_t j = 0; j < w.taps; ++j) {
        taps.push_back((h.tap_begin + i * h.tap_step) * conv_.kernel_w + w.tap_begin +
                       j * w.tap_step);
        const int64_t offset = (i * row_pixels_ + j) * conv_.source.c;
        // Without groups, neighbouring pixels' channels are one run.
        if (conv_.groups > 1 || j == 0) {
          pass.segments.push_back({offset, source_channels_});
        } else {
          pass.segments.back().length += source_channels_;
        }
      }
    }
    pass.depth = static_cast<int64_t>(taps.size()) * source_channels_;
    const Kernels& kernels = call_.kernels();
    float* packed = call_.Take<float>(pass.depth * PackedWidth(kernels, panels_));
    const float* weight =
        conv_.weight + group * source_channels_ * target_channels_ * conv_.tap_count;
    if (conv_.backward) {
      PackBackward(kernels, weight, source_channels_, target_channels_, conv_.tap_count, taps,
                   panels_, packed);
    } else {
      PackForward(kernels, weight, source_channels_, conv_.tap_count, taps, panels_, temporary,
                  packed);
    }
    pass.packed = packed;
    return pass;
  }

  // One set a worker.
  struct Buffers {
    float* padded;
    const float** rows;
    float** targets;
  };

  void MakeBuffers(int64_t block, int64_t unit_target) {
    for (int i = 0; i < call_.machine.workers(); ++i) {
      Buffers b = {};
      if (padded_) {
        const int64_t floats = block * image_pixels_ * conv_.source.c;
        b.padded = call_.Take<float>(floats);
        std::fill_n(b.padded, floats, 0.0f);
      }
      b.rows = call_.Take<const float*>(block * unit_target);
      b.targets = call_.Take<float*>(block * unit_target);
      buffers_.push_back(b);
    }
  }

  // `count` units whose source begins at x + at.
  void RunBlock(int worker, int64_t at, int64_t count, float* y) {
    const Buffers& b = buffers_[worker];
    const float* x = conv_.x + at;
    if (padded_) {
      PadImages(x, count, conv_.source, conv_.h, conv_.w, b.padded);
      x = b.padded;
    }
    for (const Pass& pass : passes_) {
      Product product;
      product.rows = PointAt(pass, x, count, y, b);
      product.a = b.rows;
      product.c = b.targets;
      product.segments = pass.segments.data();
      product.segment_count = static_cast<int64_t>(pass.segments.size());
      product.depth = pass.depth;
      product.b = pass.packed;
      product.panels = panels_.data();
      product.panel_count = static_cast<int64_t>(panels_.size());
      if (conv_.bias != nullptr) product.bias = conv_.bias + pass.group * target_channels_;
      call_.kernels().product(product);
    }
  }

  // Fills in the rows' pointers; returns how many there are.
  int64_t PointAt(const Pass& pass, const float* x, int64_t count, float* y, const Buffers& b) {
    x += pass.group * source_channels_;
    y += pass.group * target_channels_;
    if (pixelwise_) {
      for (int64_t i = 0; i < count; ++i) {
        b.rows[i] = x + i * conv_.source.c;
        b.targets[i] = y + i * conv_.target.c;
      }
      return count;
    }
    int64_t row = 0;
    for (int64_t n = 0; n < count; ++n) {
      for (int64_t i = 0; i < pass.h->count; ++i) {
        const int64_t from =
            n * image_pixels_ +
            (pass.h->source_begin + i * pass.h->source_step - low_h_) * row_pixels_ +
            pass.w->source_begin - low_w_;
        const int64_t to =
            (n * conv_.target.h + pass.h->target_begin + i * pass.h->target_step) * conv_.target.w +
            pass.w->target_begin;
        for (int64_t j = 0; j < pass.w->count; ++j, ++row) {
          b.rows[row] = x + (from + j * pass.w->source_step) * conv_.source.c;
          b.targets[row] = y + (to + j * pass.w->target_step) * conv_.target.c;
        }
      }
    }
    return row;
  }

  const Call& call_;
  const ConvProduct& conv_;
  int64_t source_channels_ = 0, target_channels_ = 0;  // of a group
  std::vector<Panel> panels_;
  bool padded_ = false, pixelwise_ = false;
  int64_t low_h_ = 0, low_w_ = 0;  // position of what is read first
  int64_t row_pixels_ = 0, image_pixels_ = 0;
  std::vector<Pass> passes_;
  std::vector<Buffers> buffers_;
};

}  // namespace

void RunConvProduct(const Call& call, const ConvProduct& conv) { Runner(call, conv).Run(); }

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
