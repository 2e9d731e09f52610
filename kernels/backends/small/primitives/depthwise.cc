#include "kernels/backends/small/primitives/depthwise.h"

namespace runnel::small {
namespace {

// The outputs of a row that an element j of the window meets with no padding and between no gaps.
struct Columns {
  int32_t output = 0, output_step = 1;  // the first, and how far the next
  int32_t source = 0, source_step = 1;
  int32_t count = 0;

  Columns(const Sliding& s, int32_t j) : output_step(s.gap_w), source_step(s.step_w) {
    // A step or a gap is 1. Places begin with j - pad.
    const int32_t begin = j - s.pad_w;
    if (s.gap_w > 1) {
      output = begin >= 0 ? (s.gap_w - begin % s.gap_w) % s.gap_w : -begin;
      source = (output + begin) / s.gap_w;
    } else {
      output = begin >= 0 ? 0 : (-begin + s.step_w - 1) / s.step_w;
      source = output * s.step_w + begin;
    }
    const int32_t outputs = output < s.out_w ? (s.out_w - 1 - output) / output_step + 1 : 0;
    const int32_t sources = source < s.image.w ? (s.image.w - 1 - source) / source_step + 1 : 0;
    count = outputs < sources ? outputs : sources;
  }
};

// Over which plane a window slides, and with which of W's taps.
template <class Rule>
struct Slide {
  Sliding sliding;
  const DepthwiseCall<Rule>& call;
  const typename Rule::Element* image;
  bool turns_taps;  // term t has W's tap taps - 1 - t

  void SumOutput(int32_t h, int32_t w, typename Rule::Sum* to) const {
    const Sliding& s = sliding;
    typename Rule::Sum sum = call.start == Start::kContinue ? *to : typename Rule::Sum{};
    for (int32_t term = 0; term < s.taps(); ++term) {
      const int32_t element = s.reversed ? s.taps() - 1 - term : term;
      const int32_t y = Sliding::Source(h, s.step_h, element / s.kw, s.pad_h, s.gap_h, s.image.h);
      const int32_t x = Sliding::Source(w, s.step_w, element % s.kw, s.pad_w, s.gap_w, s.image.w);
      if (y < 0 || x < 0) continue;
      sum =
          Rule::Add(sum, image[y * s.image.w + x], call.w[turns_taps ? s.taps() - 1 - term : term]);
    }
    *to = call.start == Start::kAdd ? Rule::Join(*to, sum) : sum;
  }

  // Tap after tap over all outputs, whose sums lie in the result: the same terms in the same order.
  void RunByTaps() const {
    const Sliding& s = sliding;
    for (int32_t term = 0; term < s.taps(); ++term) {
      const int32_t element = s.reversed ? s.taps() - 1 - term : term;
      const int32_t i = element / s.kw;
      const Columns columns(s, element % s.kw);
      const typename Rule::Element weight = call.w[turns_taps ? s.taps() - 1 - term : term];
      for (int32_t h = 0; h < s.out_h; ++h) {
        const int32_t y = Sliding::Source(h, s.step_h, i, s.pad_h, s.gap_h, s.image.h);
        if (y < 0) continue;
        const typename Rule::Element* from = image + y * s.image.w + columns.source;
        typename Rule::Sum* to = call.result + h * s.out_w + columns.output;
        if (columns.source_step == 1 && columns.output_step == 1) {
          for (int32_t n = 0; n < columns.count; ++n) to[n] = Rule::Add(to[n], from[n], weight);
          continue;
        }
        for (int32_t n = 0; n < columns.count; ++n) {
          typename Rule::Sum& sum = to[n * columns.output_step];
          sum = Rule::Add(sum, from[n * columns.source_step], weight);
        }
      }
    }
  }

  void Run() const {
    if (call.by_taps && call.start != Start::kAdd) {
      const int32_t outputs = call.start == Start::kZero ? sliding.positions() : 0;
      for (int32_t at = 0; at < outputs; ++at) call.result[at] = typename Rule::Sum{};
      return RunByTaps();
    }
    typename Rule::Sum* to = call.result;
    for (int32_t h = 0; h < sliding.out_h; ++h) {
      for (int32_t w = 0; w < sliding.out_w; ++w) SumOutput(h, w, to++);
    }
  }
};

template <class Rule>
void WeightGradient(const DepthwiseCall<Rule>& call) {
  const Sliding s = SlidingOf(call.conv, Layout::kChw, Step::kWeightGradient);
  for (int32_t tap = 0; tap < s.taps(); ++tap) {
    const Columns columns(s, tap % s.kw);
    typename Rule::Sum sum = {};
    if (call.start == Start::kContinue) sum = call.result[tap];
    for (int32_t h = 0; h < s.out_h; ++h) {
      const int32_t y = Sliding::Source(h, s.step_h, tap / s.kw, s.pad_h, 1, s.image.h);
      if (y < 0) continue;
      const typename Rule::Element* x = call.x + y * s.image.w + columns.source;
      const typename Rule::Element* dy = call.dy + h * s.out_w + columns.output;
      for (int32_t n = 0; n < columns.count; ++n)
        sum = Rule::Add(sum, x[n * columns.source_step], dy[n]);
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
