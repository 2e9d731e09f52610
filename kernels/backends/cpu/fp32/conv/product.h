#pragma once

// Convolutions as matrix products without an im2col copy: a row of A is a pixel's window, read as
// runs of contiguous floats from a channels-last image; forward and input-gradient are the same
// walk over other axes. What would read the padding is left out: a product with 0 changes no sum.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/backends/cpu/call.h"
#include "kernels/backends/cpu/fp32/conv/axes.h"
#include "kernels/backends/cpu/fp32/packing.h"
#include "kernels/backends/cpu/fp32/row_source.h"
#include "kernels/backends/cpu/fp32/summation_rule.h"

namespace runnel::fp32 {

using cpu::Call;
using cpu::Image;

// target = source convolved with weights, both channels-last.
struct ConvProduct {
  Image source, target;
  Axis h, w;
  int64_t groups = 1;
  int64_t kernel_w = 1;   // for positions in the weight
  int64_t tap_count = 1;  // taps of the weight
  bool backward = false;  // weight (source channels, target channels / groups, taps), else
                          // (target channels, source channels / groups, taps)
  const float* weight = nullptr;
  const float* bias = nullptr;  // by target channel, or null
  float* y = nullptr;
  const SumFinish* finish = nullptr;  // of all of y; null: sums stay as they are

  bool padded() const { return !h.inside() || !w.inside(); }
  // Pixels do not depend on one another: the work is cut into rows instead of images. An input-gradient
  // of a stride has several passes, even where its padding gives both images the same size.
  bool pixelwise() const {
    return !padded() && tap_count == 1 && source.rows() == target.rows() && h.passes.size() == 1 &&
           w.passes.size() == 1;
  }
};

// Blocks of an image's rows that sums are taken of as they are made (batch_norm.h) are multiples of
// this: a whole number of pieces of at most kPieceRows rows, none of which crosses two images
// unless it has them whole.
inline int64_t SumUnitRows(const Image& image) {
  const int64_t positions = image.positions();
  if (positions >= kPieceRows) return positions % kPieceRows == 0 ? kPieceRows : positions;
  return kPieceRows / positions * positions;
}

// Cuts the work of one or more convolutions into units (images, or rows where all are pixelwise); a
// block of units, with its sources and targets, stays in the second-level cache. A function of the
// shapes alone.
struct BlockPlan {
  int64_t units = 0;
  int64_t block = 1;

  // unit_floats: a unit's floats in the cache; summed: the image whose rows are summed block by
  // block.
  static BlockPlan Of(int64_t units, int64_t unit_floats, bool rows, const Image& summed);
  static BlockPlan Of(const ConvProduct& conv);
  int64_t blocks() const { return (units + block - 1) / block; }
  int64_t count(int64_t i) const { return std::min(block, units - i * block); }
};

// One convolution made ready: weights packed, buffers for each worker. Large weights are packed by
// runs of target channels, one at a time.
class ConvRunner {
 public:
  // Blocks have at most `block` units.
  ConvRunner(const Call& call, const ConvProduct& conv, bool pixelwise, int64_t block,
             Packing packing);

  int64_t runs() const { return static_cast<int64_t>(runs_.size()); }
  // Run computes the channels of this run from now on. Run 0 is packed at first.
  void Pack(int64_t run);

  // Source and target pixels of a unit.
  int64_t unit_source() const { return unit_source_; }
  int64_t unit_target() const { return unit_target_; }

  // The targets of `count` units from `unit` on, the packed channels of them. rows: their sources.
  // Any thread, but one a worker.
  void Run(int worker, const float* rows, int64_t unit, int64_t count) const;

 private:
  // Targets of a pass with the same taps inside the source.
  struct Part {
    AxisPart h, w;
    std::vector<Segment> segments;
  };
  // A combination of one pass along each axis, for one group of channels.
  struct Pass {
    const AxisPass* h = nullptr;
    const AxisPass* w = nullptr;
    int64_t group = 0;
    int64_t depth = 0;
    Taps taps;
    std::vector<Part> parts;
    float* packed = nullptr;
  };
  // One set a worker.
  struct Buffers {
    const float** rows;
    float** targets;
    ProductRows* groups;
    ProductRows* band;
  };

  Pass MakePass(const AxisPass& h, const AxisPass& w, int64_t group) const;
  Part MakePart(const AxisPass& h, const AxisPass& w, const AxisPart& part_h,
                const AxisPart& part_w) const;
  void PackPass(const Pass& pass);
  void PackRun(int64_t run, float* packed);
  int64_t packed_floats() const;  // of a run
  void MakeBuffers(int64_t block);
  void PointAt(const Pass& pass, const float* x, int64_t count, float* y, const Buffers& b) const;
  int64_t PointAtPart(const Pass& pass, const Part& part, const float* x, int64_t count, float* y,
                      const float** rows, float** targets) const;
  // Rows of the target that a product computes at a time, of `count` units; 0: all. A large image
  // is cut into bands that stay in the second-level cache from one block of the depth to the next.
  int64_t BandRows(int64_t count) const;
  // The groups of rows [begin, end) of the target in b.band; returns how many.
  static int64_t CutBand(const Pass& pass, int64_t begin, int64_t end, const Buffers& b);
  void RunPass(const Pass& pass, int64_t count, const Buffers& b) const;

  const Call& call_;
  const ConvProduct& conv_;
  const bool pixelwise_;
  int64_t unit_source_ = 0, unit_target_ = 0;
  int64_t source_channels_ = 0, target_channels_ = 0;  // channels of a group
  std::vector<PanelRun> runs_;
  const PanelRun* run_ = nullptr;  // the packed run
  int64_t width_ = 0;              // of the widest run
  float* kept_ = nullptr;          // all runs, if they are kept; one after the other
  float* temporary_ = nullptr;
  std::vector<Pass> passes_;
  std::vector<Buffers> buffers_;
};

// Floats of the cache that an image, or a row, of the convolution takes.
int64_t UnitFloats(const ConvProduct& conv, bool pixelwise);

// Runs the whole product, in the blocks of BlockPlan::Of(conv). after(row, count) is called, from
// any thread, when a block's rows of the target are done.
void RunConvProduct(const Call& call, const ConvProduct& conv, const RowSource& source,
                    absl::FunctionRef<void(int64_t, int64_t)> after);

// Copies images [0, count) into zero-padded ones of (h.high - h.low) x (w.high - w.low) pixels,
// whose padding is zero already.
void PadImages(const float* x, int64_t count, const Image& image, const Axis& h, const Axis& w,
               float* padded);

}  // namespace runnel::fp32
