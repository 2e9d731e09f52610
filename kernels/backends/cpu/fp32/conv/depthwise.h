#pragma once

// Depthwise convolutions: each channel is a group of its own. An image at a time, in a zero-padded
// copy: of as many rows as a window has, or, where several passes read it, of all.

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/fp32/conv/product.h"
#include "kernels/backends/cpu/fp32/conv/weight_gradient.h"
#include "kernels/backends/cpu/fp32/row_source.h"

namespace runnel::fp32 {

// One depthwise convolution, or its input-gradient, made ready. `conv` as for ConvProduct.
class DepthwiseRunner {
 public:
  DepthwiseRunner(const Call& call, const ConvProduct& conv);

  // The targets of one image from the rows of its source. Any thread, but one a worker.
  void Run(int worker, const float* rows, int64_t image) const;
  // Runs one image likewise, with the rows made at their place in the padded copy.
  void Run(int worker, const RowSource& source, int64_t image, float* buffer) const;

 private:
  struct Pass {
    const AxisPass* h;
    const AxisPass* w;
    const float* weight;  // (taps, C)
  };

  int64_t row_floats() const { return (conv_.w.high - conv_.w.low) * conv_.source.c; }
  // Rows of the padded copy, and one of zeros behind them if slides().
  int64_t padded_rows() const;
  int64_t padded_floats() const { return (padded_rows() + (slides() ? 1 : 0)) * row_floats(); }
  // The copy has the rows of one window, which moves down the image.
  bool slides() const { return passes_.size() == 1; }
  const float* PassWeights(const AxisPass& h, const AxisPass& w) const;
  void FillWeights(const AxisPass& h, const AxisPass& w, float* out) const;
  DepthwiseRow RowOf(const Pass& pass, const float** rows) const;
  void RunPadded(const float* padded, int64_t image) const;
  // make(row, to): row of the source image to where it begins in a padded row.
  void Slide(float* padded, int64_t image, absl::FunctionRef<void(int64_t, float*)> make) const;

  const Call& call_;
  const ConvProduct& conv_;
  std::vector<Pass> passes_;
  float* padded_ = nullptr;  // one copy a worker
};

// Images of a block: enough rows for the sums over a block to be worth their while.
BlockPlan DepthwiseBlocks(const ConvProduct& conv);

// Runs the whole convolution, as RunConvProduct, with the blocks of DepthwiseBlocks.
void RunDepthwise(const Call& call, const ConvProduct& conv, const RowSource& source,
                  absl::FunctionRef<void(int64_t, int64_t)> after);

// The weight-gradient, summed image by image in ascending order.
class DepthwiseGradientRunner {
 public:
  DepthwiseGradientRunner(const Call& call, const WeightGradient& gradient);

  // Adds the products of one image with these rows of dy. buffer: as RowSource::Rows. Uses all
  // threads.
  void Add(const RowSource& x, const float* dy, int64_t image, float* buffer);
  void Store();

 private:
  void Flush();

  const Call& call_;
  const WeightGradient& g_;
  int64_t channels_, taps_;
  int64_t images_ = 0;  // in the single-precision sums
  float* padded_;
  float* part_;
  double* total_;
};

}  // namespace runnel::fp32
