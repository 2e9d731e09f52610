// The loss's gradient and the step of the weights.

#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/rounding.h"
#include "kernels/backends/hexagon/dsp/wide_words.h"

namespace runnel::hexagon {
namespace {

constexpr int kLossShift = 4;

// value / 2^shift towards zero; 0 for a shift over 62.
int64_t DivideByPower(int64_t value, int64_t shift) {
  if (shift > 62) return 0;
  const int64_t bias = value < 0 ? (int64_t{1} << shift) - 1 : 0;
  return (value + bias) >> shift;
}

// numerator / denominator, both positive, for quotients up to 2048.
int32_t SmallQuotient(int64_t numerator, int64_t denominator) {
  int32_t quotient = 0;
  for (int bit = 11; bit >= 0; --bit) {
    // Shifts the numerator, since the divisor may have 61 bits.
    if ((numerator >> bit) < denominator) continue;
    numerator -= denominator << bit;
    quotient |= 1 << bit;
  }
  return quotient;
}

// g_j of kernels/ir/arithmetic/integer_loss.h for one sample.
void LossWeights(const int8_t* logits, int classes, int32_t exponent, int64_t* g) {
  const int e = Max(-24, Min(24, exponent));
  if (e <= -7) {
    for (int j = 0; j < classes; ++j) {
      const int64_t v = logits[j];
      g[j] = (int64_t{1} << (1 - 2 * e)) + v * (int64_t{1} << (1 - e)) + v * v;
    }
    return;
  }
  int64_t largest = 0;
  for (int j = 0; j < classes; ++j) {
    const int64_t s = DivideByPower(int64_t{logits[j]} * 47274, 15);
    g[j] = e >= 0 ? s * (int64_t{1} << e) : DivideByPower(s, -e);
    if (j == 0 || g[j] > largest) largest = g[j];
  }
  for (int j = 0; j < classes; ++j) {
    g[j] = (int64_t{1} << Max<int64_t>(0, g[j] - (largest - 10))) - 1;
  }
}

// 128 values of 64 bits that fit 32. Reads at most 1 KiB behind the last, which kSlackBytes allow.
RUNNEL_INLINE Words GradientWords(const int64_t* values) {
  Words words;
  for (int i = 0; i < 4; ++i) words.v[i] = LoadWide(values + i * kVectorWords).low;
  return words;
}

RUNNEL_INLINE Words GradientWords(const int32_t* values) { return LoadWords(values); }

// New weights: each less saturate(steps(first element)), saturated.
template <typename Steps>
void UpdateBy(Machine& machine, const DspOp& op, const Steps& steps) {
  const int8_t* weights = machine.data<int8_t>(op.in[0]);
  int8_t* updated = machine.data<int8_t>(op.out[0]);
  const uint32_t count = op.out[0].elements;
  for (uint32_t first = 0; first < count; first += kVectorBytes) {
    const Vector step = MantissasOf(steps(first));
    const Vector value = Q6_Vb_vsub_VbVb_sat(Load(weights + first), step);
    StoreBytes(updated + first, Q6_Vb_vmax_VbVb(value, SplatBytes(-127)),
               static_cast<int>(Min<uint32_t>(kVectorBytes, count - first)));
  }
}

template <typename T>
void UpdateByRounded(Machine& machine, const DspOp& op, int shift, Draws& draws,
                     const T* gradient) {
  if (op.rounding != kRoundPseudoStochastic || shift > 31) {
    return UpdateBy(machine, op, [&](uint32_t first) {
      return RoundWords(op, draws, GradientWords(gradient + first), shift, first);
    });
  }
  const PseudoRounding round(shift);
  UpdateBy(machine, op, [&](uint32_t first) {
    Words words = GradientWords(gradient + first);
    for (Vector& v : words.v) v = round(v, Q6_Vw_vabs_Vw(v));
    return words;
  });
}

}  // namespace

// The host has checked the labels.
DspStatus LossGradient(Machine& machine, const DspOp& op) {
  const int samples = op.x.n, classes = op.x.c;
  const int8_t* logits = machine.data<int8_t>(op.in[0]);
  const int32_t* labels = machine.data<int32_t>(op.in[1]);
  int8_t* dy = machine.data<int8_t>(op.out[0]);
  const int32_t exponent = machine.tail(op.in[0]).exponent;
  auto* g = machine.scratch.Take<int64_t>(classes);
  auto* p = machine.scratch.Take<int32_t>(classes);
  if (g == nullptr || p == nullptr) return DspStatus::kNoMemory;
  Draws draws(op);
  for (int n = 0; n < samples; ++n) {
    LossWeights(logits + n * classes, classes, exponent, g);
    int64_t sum = 0;
    for (int j = 0; j < classes; ++j) sum += g[j];
    int32_t floored = 0;
    for (int j = 0; j < classes; ++j) {
      p[j] = SmallQuotient(2048 * g[j], sum);
      floored += p[j];
    }
    if (labels[n] >= 0 && labels[n] < classes) p[labels[n]] -= floored;
    for (int j = 0; j < classes; ++j) {
      const uint32_t element = n * classes + j;
      dy[element] = Saturate(RoundOne(op, draws, p[j], kLossShift, element));
    }
  }
  machine.SetTail(op.out[0], 0);
  return DspStatus::kOk;
}

DspStatus Update(Machine& machine, const DspOp& op) {
  const int64_t max_abs = machine.tail(op.in[1]).max_abs;
  const int b = BitsOf(max_abs);
  const int shift = Max(0, b - op.gradient_bits);
  const bool wide = op.in[1].bytes == sizeof(int64_t);
  const Tail weight_tail = machine.tail(op.in[0]);
  Draws draws(op);
  if (b == 0) {
    UpdateBy(machine, op, [](uint32_t) { return Words{}; });
  } else if (wide && max_abs > INT32_MAX) {  // 2^31 has 31 bits and is no word
    UpdateBy(machine, op, [&](uint32_t first) {
      alignas(kVectorBytes) int32_t lanes[kVectorBytes];
      const int64_t* gradient = machine.data<int64_t>(op.in[1]) + first;
      const uint32_t count = Min<uint32_t>(kVectorBytes, op.out[0].elements - first);
      for (uint32_t i = 0; i < count; ++i) {
        lanes[i] = Saturate(RoundOne(op, draws, gradient[i], shift, first + i));
      }
      return LoadWords(lanes);
    });
  } else if (wide) {
    UpdateByRounded(machine, op, shift, draws, machine.data<int64_t>(op.in[1]));
  } else {
    UpdateByRounded(machine, op, shift, draws, machine.data<int32_t>(op.in[1]));
  }
  machine.tail(op.out[0]) = weight_tail;
  return DspStatus::kOk;
}

}  // namespace runnel::hexagon
