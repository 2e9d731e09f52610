#include "kernels/backends/cpu/int8/int8_conv.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/backends/cpu/int8/depthwise.h"
#include "kernels/backends/cpu/int8/gather_conv.h"
#include "kernels/backends/cpu/int8/weight_gradient.h"

namespace runnel::cpu {
namespace {

// Collects max|.| from the lanes that kernels raise.
class Largest {
 public:
  explicit Largest(int32_t* out) : out_(out) {}
  uint32_t* lanes() { return out_ == nullptr ? nullptr : lanes_; }
  void Store() const {
    if (out_ != nullptr)
      *out_ = static_cast<int32_t>(*std::max_element(lanes_, lanes_ + kMaxLanes));
  }

 private:
  alignas(64) uint32_t lanes_[kMaxLanes] = {};
  int32_t* out_;
};

WeightGradientProblem WeightGradientProblemOf(const ConvShape& shape) {
  WeightGradientProblem problem{.shape = shape, .x_pixel = shape.in_c, .dy_pixel = shape.out_c};
  problem.shape.in_c = shape.group_in();
  problem.shape.out_c = shape.group_out();
  problem.shape.groups = 1;
  return problem;
}

void Gather(const Int8Context& context, const ConvShape& shape, bool input_gradient,
            const int8_t* source, const int8_t* w, int32_t* out, int32_t* max_abs) {
  Largest largest(max_abs);
  if (shape.depthwise()) {
    RunDepthwise(context, shape, input_gradient, source, w, out, largest.lanes());
    largest.Store();
    return;
  }
  const GatherProblem problem = GatherProblemOf(shape, input_gradient);
  for (int64_t g = 0; g < shape.groups; ++g) {
    RunGather(context, problem,
              {.source = source + g * problem.source_c,
               .weights = w + g * shape.group_out() * problem.weight_row,
               .out = out + g * problem.out_c,
               .max_lanes = largest.lanes()});
  }
  largest.Store();
}

}  // namespace

int64_t Int8WorkspaceBytes(const Int8Kernels& kernels, const ConvShape& shape, ConvPass pass,
                           int threads) {
  int64_t bytes = 0;
  if (shape.depthwise()) {
    bytes = DepthwiseWorkspaceBytes(shape, pass, threads);
  } else if (pass == ConvPass::kForward || pass == ConvPass::kInputGradient) {
    bytes = GatherWorkspaceBytes(kernels, GatherProblemOf(shape, pass == ConvPass::kInputGradient),
                                 threads, false);
  } else {
    const PartialSums partial = pass == ConvPass::kWideWeightGradient      ? PartialSums::kWide
                                : pass == ConvPass::kRoundedWeightGradient ? PartialSums::kRounded
                                                                           : PartialSums::kInPlace;
    bytes = WeightGradientWorkspaceBytes(kernels, WeightGradientProblemOf(shape), partial, threads);
  }
  return std::max<int64_t>(64, bytes);
}

namespace {

Int8SumsSeen GatherRescaled(const Int8Context& context, const ConvShape& shape, bool input_gradient,
                            const int8_t* source, const int8_t* w, const Int8Rescale& rescale,
                            int8_t* out) {
  Int8SumsSeen seen;
  Largest largest(&seen.max_abs);
  const GatherProblem problem = GatherProblemOf(shape, input_gradient);
  for (int64_t g = 0; g < shape.groups; ++g) {
    Int8Rescale of_group = rescale;
    if (rescale.mask != nullptr) of_group.mask += g * problem.out_c;
    RunGather(context, problem,
              {.source = source + g * problem.source_c,
               .weights = w + g * shape.group_out() * problem.weight_row,
               .rescale = &of_group,
               .rescaled = out + g * problem.out_c,
               .saturated = &seen.saturated,
               .max_lanes = largest.lanes()});
  }
  largest.Store();
  return seen;
}

}  // namespace

Int8SumsSeen Int8ConvForwardRescaled(const Int8Context& context, const ConvShape& shape,
                                     const int8_t* x, const int8_t* w, const Int8Rescale& rescale,
                                     int8_t* y) {
  return GatherRescaled(context, shape, false, x, w, rescale, y);
}

Int8SumsSeen Int8ConvInputGradientRescaled(const Int8Context& context, const ConvShape& shape,
                                           const int8_t* dy, const int8_t* w,
                                           const Int8Rescale& rescale, int8_t* dx) {
  return GatherRescaled(context, shape, true, dy, w, rescale, dx);
}

void Int8ConvForward(const Int8Context& context, const ConvShape& shape, const int8_t* x,
                     const int8_t* w, int32_t* acc, int32_t* max_abs) {
  Gather(context, shape, false, x, w, acc, max_abs);
}

void Int8ConvInputGradient(const Int8Context& context, const ConvShape& shape, const int8_t* dy,
                           const int8_t* w, int32_t* acc, int32_t* max_abs) {
  Gather(context, shape, true, dy, w, acc, max_abs);
}

void Int8ConvWeightGradient(const Int8Context& context, const ConvShape& shape, const int8_t* dy,
                            const int8_t* x, int32_t* dw, int32_t* max_abs, bool adds) {
  if (shape.depthwise()) {
    RunDepthwiseWeightGradient(context, shape, dy, x, dw, nullptr, adds);
    if (max_abs != nullptr) {
      *max_abs = static_cast<int32_t>(context.kernels->max_abs(dw, shape.weight_elements()));
    }
    return;
  }
  Largest largest(max_abs);
  const WeightGradientProblem problem = WeightGradientProblemOf(shape);
  const int64_t group_weights = shape.weight_elements() / shape.groups;
  for (int64_t g = 0; g < shape.groups; ++g) {
    RunWeightGradient(context, problem,
                      {.dy = dy + g * shape.group_out(),
                       .x = x + g * shape.group_in(),
                       .dw = dw + g * group_weights,
                       .adds = adds,
                       .max_lanes = largest.lanes()});
  }
  largest.Store();
}

void Int8ConvWeightGradientWide(const Int8Context& context, const ConvShape& shape,
                                const int8_t* dy, const int8_t* x, int64_t* dw, int64_t* max_abs,
                                bool adds) {
  if (shape.depthwise()) {
    RunDepthwiseWeightGradient(context, shape, dy, x, nullptr, dw, adds);
  } else {
    const WeightGradientProblem problem = WeightGradientProblemOf(shape);
    const int64_t group_weights = shape.weight_elements() / shape.groups;
    for (int64_t g = 0; g < shape.groups; ++g) {
      RunWeightGradient(context, problem,
                        {.dy = dy + g * shape.group_out(),
                         .x = x + g * shape.group_in(),
                         .wide = dw + g * group_weights,
                         .adds = adds});
    }
  }
  if (max_abs == nullptr) return;
  *max_abs = 0;
  for (int64_t i = 0; i < shape.weight_elements(); ++i) {
    *max_abs = std::max<int64_t>(*max_abs, std::abs(dw[i]));
  }
}

int32_t Int8ConvWeightGradientRounded(const Int8Context& context, const ConvShape& shape,
                                      const int8_t* dy, const int8_t* x,
                                      const Int8TileRounding& rounding, int8_t* rounded) {
  int32_t max_abs = 0;
  Largest largest(&max_abs);
  const WeightGradientProblem problem = WeightGradientProblemOf(shape);
  const int64_t group_weights = shape.weight_elements() / shape.groups;
  for (int64_t g = 0; g < shape.groups; ++g) {
    RunWeightGradient(context, problem,
                      {.dy = dy + g * shape.group_out(),
                       .x = x + g * shape.group_in(),
                       .rounding = &rounding,
                       .rounded = rounded + g * group_weights,
                       .max_lanes = largest.lanes()});
  }
  largest.Store();
  return max_abs;
}

ConvShape LinearShape(int64_t m, int64_t n, int64_t k) {
  return {.batch = m, .in_c = k, .out_c = n};
}

}  // namespace runnel::cpu
