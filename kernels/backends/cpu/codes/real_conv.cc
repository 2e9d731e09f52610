#include "kernels/backends/cpu/codes/real_conv.h"

#include <algorithm>
#include <bit>

namespace runnel::cpu {

RealConv::RealConv(const ConvShape& shape, absl::Span<const float> weights,
                   absl::Span<const float> bias, const CodeRule& rule)
    : shape_(shape), rule_(rule), packed_(weights.size()), bias_(bias.begin(), bias.end()) {
  const int64_t rows = shape.taps() * shape.group_in(), outs = shape.group_out();
  for (int64_t o = 0; o < shape.out_c; ++o) {
    float* group = &packed_[o / outs * rows * outs];
    for (int64_t r = 0; r < rows; ++r) group[r * outs + o % outs] = weights[o * rows + r];
  }
}

void RealConv::SumAt(const CodeLoops& loops, const float* image, int64_t position,
                     float* sums) const {
  const ConvShape& s = shape_;
  const int64_t ins = s.group_in(), outs = s.group_out();
  const int64_t top = position / s.out_w * s.stride_h - s.pad_h;
  const int64_t left = position % s.out_w * s.stride_w - s.pad_w;
  std::copy(bias_.begin(), bias_.end(), sums);
  for (int64_t tap = 0; tap < s.taps(); ++tap) {
    const int64_t ih = top + tap / s.kernel_w, iw = left + tap % s.kernel_w;
    if (ih < 0 || ih >= s.in_h || iw < 0 || iw >= s.in_w) continue;  // real 0
    const float* pixel = &image[(ih * s.in_w + iw) * s.in_c];
    for (int64_t g = 0; g < s.groups; ++g) {
      loops.add_products(pixel + g * ins, ins, &packed_[(g * s.taps() + tap) * ins * outs], outs,
                         &sums[g * outs]);
    }
  }
}

// codes: or null, then all sums are kept.
void RealConv::RunSample(const CodeLoops& loops, const float* image, float* sums,
                         int8_t* codes) const {
  const auto inverse = std::bit_cast<float>(static_cast<uint32_t>(rule_.factor_a));
  for (int64_t p = 0; p < shape_.out_h * shape_.out_w; ++p) {
    float* to = codes == nullptr ? sums + p * shape_.out_c : sums;
    SumAt(loops, image, p, to);
    if (codes == nullptr) continue;
    int8_t* y = codes + p * shape_.out_c;
    loops.encode(to, shape_.out_c, inverse, static_cast<int32_t>(rule_.zero), /*max_code=*/127, y);
    for (int64_t o = 0; o < shape_.out_c; ++o)
      y[o] = static_cast<int8_t>(std::clamp<int64_t>(y[o], rule_.lowest, rule_.highest));
  }
}

void RealConv::Run(const Machine& machine, int64_t batch, const Operand& x,
                   const Operand& y) const {
  const int64_t ins = shape_.in_elements(), outs = shape_.out_elements();
  const bool takes_codes = x.buffer->dtype == DType::kInt8;
  const bool gives_codes = y.buffer->dtype == DType::kInt8;
  const auto scale = std::bit_cast<double>(rule_.factor_b);
  auto* images = machine.workspace->Take<float>(ins * machine.workers());
  auto* sums = machine.workspace->Take<float>(shape_.out_c * machine.workers());
  ParallelFor(machine, batch, [&](int worker, int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const float* image = reinterpret_cast<const float*>(x.data) + b * ins;
      if (takes_codes) {
        float* decoded = images + worker * ins;
        const auto* codes = reinterpret_cast<const int8_t*>(x.data) + b * ins;
        for (int64_t i = 0; i < ins; ++i)
          decoded[i] = static_cast<float>(static_cast<double>(codes[i] - rule_.zero_a) * scale);
        image = decoded;
      }
      if (gives_codes) {
        RunSample(*machine.codes, image, sums + worker * shape_.out_c,
                  reinterpret_cast<int8_t*>(y.data) + b * outs);
      } else {
        RunSample(*machine.codes, image, reinterpret_cast<float*>(y.data) + b * outs, nullptr);
      }
    }
  });
}

}  // namespace runnel::cpu
