#pragma once

// Weight-gradients as sums of outer products over pixels: of an output pixel's gradient and the
// window of inputs that it saw.

#include <cstdint>
#include <vector>

#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/fp32/conv_axes.h"
#include "kernels/backends/cpu/fp32/conv_product.h"
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
};

// Blocks of pixels. They decide the order of sums, so the result's bytes depend on them. The same
// when the input-gradient is computed along.
BlockPlan BlocksOf(const WeightGradient& gradient);

// One gradient being summed. Add is called for one block of units after the other. Large gradients
// are summed by runs of channels of dy, one run after the other.
class WeightGradientRunner {
 public:
  WeightGradientRunner(const cpu::Call& call, const WeightGradient& gradient, bool pixelwise,
                       int64_t block, Packing packing);

  int64_t unit_x() const { return unit_x_; }
  int64_t unit_y() const { return unit_y_; }

  int64_t runs() const { return static_cast<int64_t>(runs_.size()); }
  // Add and Store are about this run from now on; run 0 at first.
  void Begin(int64_t run);
  // Adds the products of `count` units, whose rows these are. Uses all threads.
  void Add(const float* x, const float* dy, int64_t count);
  // Writes the run's part of dweight.
  void Store();

 private:
  void CutRows();
  void PointAtWindows(const float* x, int64_t count);
  void MarkOutside(int64_t block);
  void AddGroup(int64_t group, int64_t pixels);

  const cpu::Call& call_;
  const WeightGradient& g_;
  const bool pixelwise_;
  bool skips_ = false;   // products with the padding are left out
  bool padded_ = false;  // they are done, with a copy that has it
  int64_t unit_x_ = 1, unit_y_ = 1;
  int64_t ins_ = 0, outs_ = 0;  // channels of a group
  bool swapped_ = false;        // the inputs lie in registers, not the outputs' gradients
  bool in_place_ = false;       // the sums are dweight
  bool any_ = false;            // something is in the sums
  int64_t row_pixels_ = 0, image_pixels_ = 0;
  std::vector<Segment> x_segments_, dy_segments_;
  uint64_t* outside_ = nullptr;  // OuterProduct::outside of a block
  std::vector<PanelRun> runs_;
  const PanelRun* run_ = nullptr;
  const float** x_pixels_ = nullptr;
  const float** dy_pixels_ = nullptr;
  const float** x_group_ = nullptr;
  const float** dy_group_ = nullptr;
  float* padded_x_ = nullptr;
  float* sums_ = nullptr;
  float* temporary_ = nullptr;
};

// Computes the whole weight-gradient.
void RunWeightGradient(const cpu::Call& call, const WeightGradient& gradient, const RowSource& x,
                       const RowSource& dy);

}  // namespace runnel::fp32
