#pragma once

// Weight-gradients as sums of outer products over pixels: of an output pixel's gradient and the
// window of inputs that it saw.

#include <cstdint>
#include <vector>

#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/fp32/conv/axes.h"
#include "kernels/backends/cpu/fp32/conv/product.h"
#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/fp32/row_source.h"

namespace runnel::fp32 {

// All tensors channels-last but dweight, (outs, ins / groups, taps). Adds to dweight where the
// context says so.
struct WeightGradient {
  cpu::Image x_image, y_image;
  Axis h, w;  // forward
  int64_t groups = 1;
  float* dweight = nullptr;

  bool padded() const { return !h.inside() || !w.inside(); }
  int64_t taps() const { return h.passes[0].taps * w.passes[0].taps; }
  // Pixels do not depend on one another.
  bool pixelwise() const { return !padded() && taps() == 1 && x_image.rows() == y_image.rows(); }
  // Channels of a group.
  int64_t ins() const { return x_image.c / groups; }
  int64_t outs() const { return y_image.c / groups; }
};

// Blocks of pixels. They decide the order of sums, so the result's bytes depend on them. The same
// when the input-gradient is computed along.
BlockPlan BlocksOf(const WeightGradient& gradient);

// The pixels whose outer products are summed, by pointers: windows of x, and the gradients of the
// output pixels that saw them.
class PixelPairs {
 public:
  // pads: windows reach into a copy of x that has the padding. Units are pixels (pixelwise) or
  // images, at most `block` of them at a time.
  PixelPairs(const cpu::Call& call, const WeightGradient& gradient, bool pixelwise, bool pads,
             int64_t block);

  // Pixels of a unit.
  int64_t unit_x() const { return pixelwise_ ? 1 : g_.x_image.positions(); }
  int64_t unit_y() const { return pixelwise_ ? 1 : g_.y_image.positions(); }
  // From a pixel of a window to the one below it.
  int64_t row_pixels() const { return row_pixels_; }
  // Points at the pixels of `count` units; dy_begin: the first channel of dy.
  void Point(const float* x, const float* dy, int64_t dy_begin, int64_t count);
  // Those pixels, of one group of channels.
  void SetGroup(int64_t group, int64_t pixels);
  const float** x() const { return x_; }
  const float** dy() const { return dy_; }

 private:
  void PointAtWindows(const float* x, int64_t count);

  const WeightGradient& g_;
  const bool pixelwise_;
  const bool pads_;
  const int64_t row_pixels_, image_pixels_;
  const float** x_pixels_;
  const float** dy_pixels_;
  const float** x_group_;
  const float** dy_group_;
  const float** x_ = nullptr;  // of the group that is set
  const float** dy_ = nullptr;
  float* padded_x_ = nullptr;
};

// The sums of outer products. Large ones are cut into runs of channels, one run after the other.
class GradientSums {
 public:
  // swapped: the inputs lie in registers, not the outputs' gradients.
  GradientSums(const cpu::Call& call, const WeightGradient& gradient, bool swapped,
               Packing packing);

  int64_t runs() const { return static_cast<int64_t>(runs_.size()); }
  // The rest is about this run from now on; run 0 at first.
  void Begin(int64_t run);
  const PanelRun& run() const { return *run_; }
  float* OfGroup(int64_t group) const;
  // Something is in the sums.
  bool any() const { return any_; }
  void SetAny() { any_ = true; }
  // Writes the run's part of dweight.
  void Store();

 private:
  int64_t group_size() const;

  const cpu::Call& call_;
  const WeightGradient& g_;
  const bool swapped_;
  const bool in_place_;  // the sums are dweight
  bool any_ = false;
  std::vector<PanelRun> runs_;
  const PanelRun* run_ = nullptr;
  float* sums_ = nullptr;
  float* temporary_ = nullptr;
};

// One gradient being summed. Add is called for one block of units after the other.
class WeightGradientRunner {
 public:
  WeightGradientRunner(const cpu::Call& call, const WeightGradient& gradient, bool pixelwise,
                       int64_t block, Packing packing);

  int64_t unit_x() const { return pairs_.unit_x(); }
  int64_t unit_y() const { return pairs_.unit_y(); }

  int64_t runs() const { return sums_.runs(); }
  // Add and Store are about this run from now on; run 0 at first.
  void Begin(int64_t run) { sums_.Begin(run); }
  // Adds the products of `count` units, whose rows these are. Uses all threads.
  void Add(const float* x, const float* dy, int64_t count);
  void Store() { sums_.Store(); }

 private:
  void CutRows();
  void MarkOutside(int64_t block);
  void AddGroup(int64_t group, int64_t pixels);

  const cpu::Call& call_;
  const WeightGradient& g_;
  const bool swapped_;  // GradientSums'
  const bool skips_;    // products with the padding are left out, else done with a copy that has it
  PixelPairs pairs_;
  GradientSums sums_;
  std::vector<Segment> x_segments_, dy_segments_;
  uint64_t* outside_ = nullptr;  // OuterProduct::outside of a block
};

// Computes the whole weight-gradient.
void RunWeightGradient(const cpu::Call& call, const WeightGradient& gradient, const RowSource& x,
                       const RowSource& dy);

}  // namespace runnel::fp32
