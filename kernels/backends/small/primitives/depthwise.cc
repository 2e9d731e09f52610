#include "kernels/backends/small/primitives/depthwise.h"

namespace runnel::small {
namespace {

// Over which plane a window slides, and with which of W's taps.
template <class Rule>
struct Slide {
  Sliding sliding;
  const DepthwiseCall<Rule>& call;
  const typename Rule::Element* image;
  bool turns_taps;  // term t has W's tap taps - 1 - t

  // kOutputs neighbours of a row, each from its own sum.
  template <int kOutputs>
  void SumOutputs(int32_t h, int32_t w, typename Rule::Sum* to) const {
    const Sliding& s = sliding;
    typename Rule::Sum sums[kOutputs];
    for (int o = 0; o < kOutputs; ++o)
      sums[o] = call.start == Start::kContinue ? to[o] : typename Rule::Sum{};
    for (int32_t term = 0; term < s.taps(); ++term) {
      const int32_t element = s.reversed ? s.taps() - 1 - term : term;
      const int32_t i = element / s.kw, j = element % s.kw;
      const int32_t y = Sliding::Source(h, s.step_h, i, s.pad_h, s.gap_h, s.image.h);
      if (y < 0) continue;
      const typename Rule::Element weight = call.w[turns_taps ? s.taps() - 1 - term : term];
      for (int o = 0; o < kOutputs; ++o) {
        const int32_t x = Sliding::Source(w + o, s.step_w, j, s.pad_w, s.gap_w, s.image.w);
        if (x >= 0) sums[o] = Rule::Add(sums[o], image[y * s.image.w + x], weight);
      }
    }
    for (int o = 0; o < kOutputs; ++o)
      to[o] = call.start == Start::kAdd ? Rule::Join(to[o], sums[o]) : sums[o];
  }

  void Run() const {
    typename Rule::Sum* to = call.result;
    for (int32_t h = 0; h < sliding.out_h; ++h, to += sliding.out_w) {
      int32_t w = 0;
      for (; call.unrolled && w + 4 <= sliding.out_w; w += 4) SumOutputs<4>(h, w, to + w);
      for (; w < sliding.out_w; ++w) SumOutputs<1>(h, w, to + w);
    }
  }
};

template <class Rule>
void WeightGradient(const DepthwiseCall<Rule>& call) {
  const Sliding s = SlidingOf(call.conv, Layout::kChw, Step::kWeightGradient);
  for (int32_t tap = 0; tap < s.taps(); ++tap) {
    typename Rule::Sum sum = {};
    if (call.start == Start::kContinue) sum = call.result[tap];
    for (int32_t h = 0; h < s.out_h; ++h) {
      const int32_t y = Sliding::Source(h, s.step_h, tap / s.kw, s.pad_h, 1, s.image.h);
      if (y < 0) continue;
      for (int32_t w = 0; w < s.out_w; ++w) {
        const int32_t x = Sliding::Source(w, s.step_w, tap % s.kw, s.pad_w, 1, s.image.w);
        if (x >= 0) sum = Rule::Add(sum, call.x[y * s.image.w + x], call.dy[h * s.out_w + w]);
      }
    }
    typename Rule::Sum& to = call.result[tap];
    to = call.start == Start::kAdd ? Rule::Join(to, sum) : sum;
  }
}

}  // namespace

template <class Rule>
void RunDepthwise(Step step, const DepthwiseCall<Rule>& call) {
  if (step == Step::kWeightGradient) return WeightGradient(call);
  Conv one = call.conv;
  one.in.c = one.out.c = 1;
  const bool is_forward = step == Step::kForward;
  Slide<Rule>{SlidingOf(one, Layout::kChw, step), call, is_forward ? call.x : call.dy,
              !is_forward && !call.conv.keeps_taps}
      .Run();
}

template void RunDepthwise(Step, const DepthwiseCall<Float32Rule>&);
template void RunDepthwise(Step, const DepthwiseCall<WideRule<F16>>&);
template void RunDepthwise(Step, const DepthwiseCall<WideRule<Bf16>>&);
template void RunDepthwise(Step, const DepthwiseCall<NarrowRule<F16>>&);
template void RunDepthwise(Step, const DepthwiseCall<NarrowRule<Bf16>>&);

}  // namespace runnel::small
