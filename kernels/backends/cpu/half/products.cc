// Convolutions and linear layers: rows of FP32 are gathered and multiplied by those kernels of fp32
// whose sums are one chain of fused multiply-adds, with the terms in the order of pairs.

#include <algorithm>
#include <vector>

#include "kernels/backends/cpu/fp32/packing.h"
#include "kernels/backends/cpu/half/half_kernels.h"
#include "kernels/backends/cpu/half/taps.h"
#include "kernels/ir/arithmetic/half_products.h"

namespace runnel::half {
namespace {

using fp32::Panel;

void RunProduct(const Call& call, const fp32::Product& product) {
  const auto run = call.machine.half->product;
  run != nullptr ? run(product) : call.kernels().product(product);
}

void RunOuterProduct(const Call& call, const fp32::OuterProduct& product) {
  const auto run = call.machine.half->outer_product;
  run != nullptr ? run(product) : call.kernels().outer_product(product);
}

// One forward or input-gradient.
class ProductRun {
 public:
  ProductRun(const Call& call, const Conv& conv, bool backward)
      : call_(call),
        conv_(conv),
        backward_(backward),
        walk_(conv, backward),
        from_(OfInput(call, 0)),
        ins_(backward ? conv.out() : conv.in()),
        outs_(backward ? conv.in() : conv.out()),
        bias_(backward || call.inputs.size() < 3 ? nullptr : call.in(2)) {}

  void Run() {
    RoundWeights();
    if (conv_.is_depthwise()) {
      for (const TargetSet& set : walk_.sets()) RunDepthwise(set);
      return;
    }
    for (int64_t group = 0; group < conv_.groups; ++group) {
      for (const TargetSet& set : walk_.sets()) RunSet(set, group);
    }
  }

 private:
  // Weights as they are multiplied: rounded, the channels that are summed over in pairs.
  void RoundWeights() {
    const int64_t taps = conv_.taps(), inner = conv_.in() * taps;
    uint16_t* const rounded = call_.Take<uint16_t>(inner);
    weights_ = call_.Take<float>(conv_.y.c * inner);
    for (int64_t o = 0; o < conv_.y.c; ++o) {
      const int64_t first = o / conv_.out() * conv_.out();
      const int64_t from = backward_ ? first + InPairs(o - first, conv_.out()) : o;
      float* const to = weights_ + o * inner;
      from_.narrow(call_.in(1) + from * inner, inner, rounded);
      if (backward_) {
        from_.widen(rounded, inner, to);
      } else if (taps == 1) {
        from_.widen_pairs(rounded, inner, to);
      } else {
        for (int64_t i = 0; i < conv_.in(); ++i)
          from_.widen(rounded + InPairs(i, conv_.in()) * taps, taps, to + i * taps);
      }
    }
  }

  float* Pack(const TargetSet& set, int64_t group, const std::vector<Panel>& panels) {
    const int64_t depth = static_cast<int64_t>(set.taps.size()) * ins_;
    float* const packed = call_.Take<float>(fp32::PackedWidth(call_.kernels(), panels) * depth);
    const float* weights = weights_ + group * conv_.out() * conv_.in() * conv_.taps();
    if (backward_) {
      fp32::PackBackward(call_.kernels(), weights, ins_, outs_, conv_.taps(), set.taps, panels,
                         packed);
    } else {
      fp32::PackForward(call_.kernels(), weights, ins_, conv_.taps(), set.taps, panels,
                        call_.Take<float>(16 * conv_.taps() * 64), packed);
    }
    return packed;
  }

  void RunSet(const TargetSet& set, int64_t group) {
    const int64_t depth = static_cast<int64_t>(set.taps.size()) * ins_;
    const std::vector<Panel> panels = fp32::MakePanels(call_.kernels(), outs_);
    const float* const packed = depth > 0 ? Pack(set, group, panels) : nullptr;
    const int64_t pixels = set.pixels(walk_.target());
    // Rows whose FP32 stays in the second-level cache.
    const int64_t block = std::clamp<int64_t>((1 << 18) / std::max<int64_t>(depth, 1), 32, 256);
    const int64_t workers = call_.machine.workers();
    float* const rows = call_.Take<float>(workers * block * (depth + outs_));
    const float** const a = call_.Take<const float*>(workers * block);
    float** const c = call_.Take<float*>(workers * block);
    const fp32::Segment all = {.length = depth};
    ParallelFor(
        call_.machine, (pixels + block - 1) / block, [&](int worker, int64_t begin, int64_t end) {
          const FlushSubnormals flush;
          float* const gathered = rows + worker * block * (depth + outs_);
          float* const sums = gathered + block * depth;
          for (int64_t r = 0; r < block; ++r) {
            a[worker * block + r] = gathered + r * depth;
            c[worker * block + r] = sums + r * outs_;
          }
          for (int64_t i = begin * block; i < std::min(pixels, end * block); i += block) {
            const int64_t count = std::min(block, pixels - i);
            for (int64_t r = 0; r < count; ++r)
              walk_.Gather(set, walk_.TargetOf(set, i + r), group * ins_, ins_, /*pairs=*/true,
                           from_, call_.in<uint16_t>(0), gathered + r * depth);
            const fp32::ProductRows of_rows = {a + worker * block, c + worker * block, count, &all,
                                               1};
            if (depth == 0) std::fill_n(sums, count * outs_, 0.0f);
            if (depth > 0)
              RunProduct(call_, {&of_rows, 1, depth, packed, panels.data(),
                                 static_cast<int64_t>(panels.size()),
                                 bias_ == nullptr ? nullptr : bias_ + group * outs_});
            Store(set, i, count, group, sums);
          }
        });
  }

  // sums of the set's pixels from `first` on -> the target.
  void Store(const TargetSet& set, int64_t first, int64_t count, int64_t group, float* sums) const {
    call_.machine.half->clear_signs(sums, count * outs_);
    const int64_t channels = walk_.target().c;
    if (channels == outs_ && walk_.sets().size() == 1)
      return half::Store(call_, sums, count * outs_, first * channels);
    for (int64_t r = 0; r < count; ++r)
      half::Store(call_, sums + r * outs_, outs_,
                  walk_.TargetOf(set, first + r) * channels + group * outs_);
  }

  void RunDepthwise(const TargetSet& set) {
    const int64_t channels = conv_.x.c, taps = static_cast<int64_t>(set.taps.size());
    float* const by_tap = call_.Take<float>(conv_.taps() * channels);
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t t = 0; t < taps; ++t)
        by_tap[t * channels + c] = weights_[c * conv_.taps() + set.taps[t]];
    }
    float* const rows = call_.Take<float>(call_.machine.workers() * (taps + 1) * channels);
    const auto body = [&](int worker, int64_t begin, int64_t end) {
      const FlushSubnormals flush;
      float* const sums = rows + worker * (taps + 1) * channels;
      for (int64_t i = begin; i < end; ++i) {
        walk_.Gather(set, walk_.TargetOf(set, i), 0, channels, /*pairs=*/false, from_,
                     call_.in<uint16_t>(0), sums + channels);
        std::fill_n(sums, channels, 0.0f);
        if (bias_ != nullptr) std::copy_n(bias_, channels, sums);
        for (int64_t t = 0; t < taps; ++t)
          call_.machine.half->multiply_add(sums + (t + 1) * channels, by_tap + t * channels,
                                           channels, sums);
        call_.machine.half->clear_signs(sums, channels);
        half::Store(call_, sums, channels, walk_.TargetOf(set, i) * channels);
      }
    };
    ParallelFor(call_.machine, set.pixels(walk_.target()), body);
  }

  const Call& call_;
  const Conv& conv_;
  const bool backward_;
  const Walk walk_;
  const Conversions& from_;
  const int64_t ins_, outs_;  // channels of a group that are summed over, and that are made
  const float* const bias_;
  float* weights_ = nullptr;
};

// One weight-gradient.
class OuterRun {
 public:
  OuterRun(const Call& call, const Conv& conv)
      : call_(call), conv_(conv), walk_(conv, /*backward=*/false), depth_(conv.taps() * conv.x.c) {
    x_ = call.Take<float>(kHalfPixels * depth_);
    dy_ = call.Take<float>(kHalfPixels * conv.y.c);
  }

  void Run() {
    if (call_.outputs.size() > 1) StoreBias();
    const bool accumulate = call_.context->accumulate;
    const int64_t rows = conv_.y.rows();
    // A linear layer's weights lie as (out, in): where no sum is needed beside them, there.
    const bool in_place = conv_.taps() == 1 && conv_.groups == 1 && conv_.x.positions() == 1 &&
                          (!accumulate || rows <= kHalfPixels);
    const int64_t count = call_.out_shape(0).elements();
    float* const sums = in_place ? call_.out(0) : call_.Take<float>(count);
    if (!in_place || !accumulate) std::fill_n(sums, count, 0.0f);
    for (int64_t row = 0; row < rows; row += kHalfPixels)
      AddPixels(row, std::min(kHalfPixels, rows - row), in_place, sums);
    if (in_place) return;
    const int64_t of_group = count / conv_.groups;
    float* const temporary = call_.Take<float>(16 * conv_.taps() * (conv_.out() + 1));
    if (conv_.is_depthwise()) return StoreDepthwise(sums);
    for (int64_t group = 0; group < conv_.groups; ++group)
      fp32::StoreWeightGradient(call_.kernels(), sums + group * of_group, conv_.out(), conv_.in(),
                                conv_.taps(), accumulate, temporary,
                                call_.out(0) + group * of_group);
  }

 private:
  void StoreBias() {
    const int64_t channels = conv_.y.c, step = std::max<int64_t>(1, kHalfPixels);
    double* const sums = call_.Take<double>(channels);
    std::fill_n(sums, channels, 0.0);
    for (int64_t row = 0; row < conv_.y.rows(); row += step) {
      const int64_t rows = std::min(step, conv_.y.rows() - row);
      OfInput(call_, 0).widen(call_.in<uint16_t>(0) + row * channels, rows * channels, dy_);
      call_.machine.half->add_rows(dy_, rows, channels, sums);
    }
    for (int64_t c = 0; c < channels; ++c) {
      float& gradient = call_.out(1)[c];
      const auto sum = static_cast<float>(sums[c]);
      gradient = call_.context->accumulate ? gradient + sum : sum;
    }
  }

  // The partial sums of `count` pixels of y from `first` on.
  void AddPixels(int64_t first, int64_t count, bool in_place, float* sums) {
    const float *x[kHalfPixels], *dy[kHalfPixels];
    for (int64_t p = 0; p < count; ++p) {
      x[p] = x_ + InPairs(p, count) * depth_;
      dy[p] = dy_ + InPairs(p, count) * conv_.y.c;
    }
    OfInput(call_, 0).widen(call_.in<uint16_t>(0) + first * conv_.y.c, count * conv_.y.c, dy_);
    ParallelFor(call_.machine, count, [&](int, int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        walk_.Gather(walk_.sets()[0], first + p, 0, conv_.x.c, /*pairs=*/false, OfInput(call_, 1),
                     call_.in<uint16_t>(1), x_ + p * depth_);
    });
    if (conv_.is_depthwise()) return AddDepthwise(x, dy, count, sums);
    if (in_place) return AddOuter(dy, conv_.y.c, x, conv_.x.c, count, sums);
    if (conv_.groups == 1) return AddOuter(x, depth_, dy, conv_.y.c, count, sums);
    for (int64_t group = 0; group < conv_.groups; ++group) AddGroup(group, count, sums);
  }

  // sums (lefts, rights) += left * right, by ranges of left.
  void AddOuter(const float* const* left, int64_t lefts, const float* const* right, int64_t rights,
                int64_t count, float* sums) {
    const std::vector<Panel> panels = fp32::MakePanels(call_.kernels(), rights);
    ParallelFor(call_.machine, (lefts + kUnit - 1) / kUnit, [&](int, int64_t begin, int64_t end) {
      const FlushSubnormals flush;
      const int64_t from = begin * kUnit;
      const fp32::Segment segment = {.offset = from, .length = std::min(lefts, end * kUnit) - from};
      RunOuterProduct(call_, {.left = left,
                              .right = right,
                              .pixels = count,
                              .segments = &segment,
                              .segment_count = 1,
                              .panels = panels.data(),
                              .panel_count = static_cast<int64_t>(panels.size()),
                              .accumulate = true,
                              .sums = sums + from * rights,
                              .stride = rights});
    });
  }

  // A group's channels of each tap, and of dy.
  void AddGroup(int64_t group, int64_t count, float* sums) {
    const std::vector<Panel> panels = fp32::MakePanels(call_.kernels(), conv_.out());
    const float *x[kHalfPixels], *dy[kHalfPixels];
    for (int64_t p = 0; p < count; ++p) {
      x[p] = x_ + InPairs(p, count) * depth_;
      dy[p] = dy_ + InPairs(p, count) * conv_.y.c + group * conv_.out();
    }
    std::vector<fp32::Segment> segments;
    for (int64_t tap = 0; tap < conv_.taps(); ++tap)
      segments.push_back({.offset = tap * conv_.x.c + group * conv_.in(), .length = conv_.in()});
    const FlushSubnormals flush;
    RunOuterProduct(call_, {.left = x,
                            .right = dy,
                            .pixels = count,
                            .segments = segments.data(),
                            .segment_count = static_cast<int64_t>(segments.size()),
                            .panels = panels.data(),
                            .panel_count = static_cast<int64_t>(panels.size()),
                            .accumulate = true,
                            .sums = sums + group * conv_.out() * conv_.in() * conv_.taps(),
                            .stride = conv_.out()});
  }

  // sums: (taps, channels).
  void AddDepthwise(const float* const* x, const float* const* dy, int64_t count, float* sums) {
    const int64_t channels = conv_.x.c;
    std::vector<float> partial(static_cast<size_t>(channels));
    const FlushSubnormals flush;
    for (int64_t tap = 0; tap < conv_.taps(); ++tap) {
      std::fill(partial.begin(), partial.end(), 0.0f);
      for (int64_t p = 0; p < count; ++p)
        call_.machine.half->multiply_add(x[p] + tap * channels, dy[p], channels, partial.data());
      call_.machine.half->add(sums + tap * channels, partial.data(), channels,
                              sums + tap * channels);
    }
  }

  void StoreDepthwise(const float* sums) {
    for (int64_t c = 0; c < conv_.x.c; ++c) {
      for (int64_t tap = 0; tap < conv_.taps(); ++tap) {
        float& gradient = call_.out(0)[c * conv_.taps() + tap];
        const float sum = sums[tap * conv_.x.c + c];
        gradient = call_.context->accumulate ? gradient + sum : sum;
      }
    }
  }

  static constexpr int64_t kUnit = 48;  // a multiple of a tile's rows on most registers

  const Call& call_;
  const Conv& conv_;
  const Walk walk_;
  const int64_t depth_;
  float *x_, *dy_;  // kHalfPixels rows
};

}  // namespace

absl::Status Forward(Calls calls) {
  const Call& call = calls[0];
  const Conv conv(call.instruction->attributes, call.in_shape(0), call.out_shape(0));
  ProductRun(call, conv, /*backward=*/false).Run();
  return absl::OkStatus();
}

absl::Status InputGradient(Calls calls) {
  const Call& call = calls[0];
  const Conv conv(call.instruction->attributes, call.out_shape(0), call.in_shape(0));
  ProductRun(call, conv, /*backward=*/true).Run();
  return absl::OkStatus();
}

absl::Status WeightGradient(Calls calls) {
  const Call& call = calls[0];
  const Conv conv(call.instruction->attributes, call.in_shape(1), call.in_shape(0));
  OuterRun(call, conv).Run();
  return absl::OkStatus();
}

}  // namespace runnel::half
