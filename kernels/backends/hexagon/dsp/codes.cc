// Instructions of INT8 inference, as kernels/ir/arithmetic/code_rule.h says.

#include "kernels/backends/hexagon/dsp/hvx.h"
#include "kernels/backends/hexagon/dsp/machine.h"
#include "kernels/backends/hexagon/dsp/wide_words.h"
#include "kernels/ir/arithmetic/code_rule.h"

namespace runnel::hexagon {
namespace {

// Planes from this size on are computed in vectors.
constexpr int kVectorPlane = 16;

template <typename T>
T Clamp(T value, T least, T most) {
  return Max(least, Min(most, value));
}

int64_t RoundHalfAway(int64_t value, int shift) {
  const int64_t magnitude = value < 0 ? -value : value;
  const int64_t quotient = (magnitude + (int64_t{1} << (shift - 1))) >> shift;
  return value < 0 ? -quotient : quotient;
}

int8_t ClampCode(const CodeRule& rule, int64_t code) {
  return static_cast<int8_t>(Clamp(code + rule.zero, rule.lowest, rule.highest));
}

// Rounded codes, within +-kBeyondCodes, with the output's zero and clamp.
RUNNEL_INLINE Vector ClampCodes(const CodeRule& rule, const Words& codes) {
  Words clamped;
  for (int i = 0; i < 4; ++i) {
    const Vector code = Q6_Vw_vadd_VwVw(codes.v[i], Splat(static_cast<int32_t>(rule.zero)));
    clamped.v[i] = Q6_Vw_vmax_VwVw(Q6_Vw_vmin_VwVw(code, Splat(static_cast<int32_t>(rule.highest))),
                                   Splat(static_cast<int32_t>(rule.lowest)));
  }
  return MantissasOf(clamped);
}

// Products read the exponents of what they multiply.
DspStatus WithoutScale(const Machine& machine, const DspOp& op) {
  if (op.out[0].tail != 0) machine.SetTail(op.out[0], 0);
  return DspStatus::kOk;
}

constexpr int64_t kMostReal = 1000000;
constexpr uint32_t kInfinite = 0x7f800000;

int64_t MantissaOf(uint32_t magnitude) {
  const uint32_t fraction = magnitude & 0x7fffff;
  return (magnitude >> 23) == 0 ? fraction : fraction | 0x800000;
}
int ExponentOf(uint32_t magnitude) { return Max(static_cast<int>(magnitude >> 23), 1); }

// round((float)(x * factor)) of finite magnitudes, at most kMostReal.
int64_t RoundProduct(uint32_t magnitude, uint32_t factor) {
  auto product = static_cast<uint64_t>(MantissaOf(magnitude) * MantissaOf(factor));
  int exponent = ExponentOf(magnitude) + ExponentOf(factor) - 300;
  if (product == 0) return 0;
  const int dropped = 40 - __builtin_clzll(product);
  if (dropped > 0) {  // to a float's 24 bits, halves to even
    product =
        (product + (uint64_t{1} << (dropped - 1)) - 1 + ((product >> dropped) & 1)) >> dropped;
    exponent += dropped;
  }
  if (exponent > 20) return kMostReal;
  if (exponent >= 0) return Min(static_cast<int64_t>(product << exponent), kMostReal);
  if (exponent < -40) return 0;
  const uint64_t half = uint64_t{1} << (-exponent - 1);
  return Min(static_cast<int64_t>((product + half) >> -exponent), kMostReal);
}

int64_t EncodeReal(uint32_t x, uint32_t factor) {
  const uint32_t magnitude = x & 0x7fffffff;
  const bool is_nan = magnitude > kInfinite || factor > kInfinite ||
                      (magnitude == kInfinite && factor == 0) ||
                      (factor == kInfinite && magnitude == 0);
  if (is_nan) return -kMostReal;
  const bool is_finite = magnitude < kInfinite && factor < kInfinite;
  const int64_t rounded = is_finite ? RoundProduct(magnitude, factor) : kMostReal;
  return (x >> 31) != 0 ? -rounded : rounded;
}

// A plane of sums or codes, with its channel's constants.
struct Plane {
  const int8_t* codes = nullptr;  // or
  const int32_t* sums = nullptr;
  const int32_t* row_sums = nullptr;  // may be null
  int count = 0;
  CodeChannel channel;
  int8_t* y = nullptr;       // or
  int32_t* given = nullptr;  // the sums themselves
};

void RequantizeOne(const CodeRule& rule, const Plane& p, int i) {
  int64_t sum = p.channel.offset + (p.codes != nullptr ? p.codes[i] : p.sums[i]);
  if (p.row_sums != nullptr) sum -= p.channel.weight_zero * p.row_sums[i];
  sum = Clamp<int64_t>(sum, -INT32_MAX, INT32_MAX);
  if (p.given != nullptr) {
    p.given[i] = static_cast<int32_t>(sum);
    return;
  }
  const auto shift = static_cast<int>(p.channel.shift);
  p.y[i] = ClampCode(rule, RoundHalfAway(sum * p.channel.multiplier, shift));
}

void RequantizePlane(const CodeRule& rule, const Plane& p) {
  const Wide offset = SplatWide(p.channel.offset);
  // A word by a signed byte.
  const int32_t minus_zero = (static_cast<int32_t>(-p.channel.weight_zero) & 255) * 0x01010101;
  for (int at = 0; at < p.count; at += kVectorBytes) {
    const int count = Min(kVectorBytes, p.count - at);
    Words words = p.codes != nullptr ? WordsOfBytes(Load(p.codes + at)) : LoadWords(p.sums + at);
    for (int i = 0; i < 4; ++i) {
      Wide sum = AddWide(WideOf(words.v[i]), offset);
      if (p.row_sums != nullptr) {
        const Vector rows = Load(p.row_sums + at + i * kVectorWords);
        sum = AddWide(sum, WideOf(Q6_Vw_vmpyi_VwRb(rows, minus_zero)));
      }
      words.v[i] = SaturateWide(sum);
    }
    if (p.given != nullptr) {
      StoreWords(p.given + at, words, count);
      continue;
    }
    for (Vector& v : words.v) {
      v = RoundHalfAwayWide(MultiplyWide(v, static_cast<int32_t>(p.channel.multiplier)),
                            static_cast<int>(p.channel.shift));
    }
    StoreBytes(p.y + at, ClampCodes(rule, words), count);
  }
}

}  // namespace

DspStatus EncodeCodes(Machine& machine, const DspOp& op) {
  const auto* x = machine.data<uint32_t>(op.in[0]);
  const CodeRule rule = *machine.data<CodeRule>(op.in[1]);
  const auto factor = static_cast<uint32_t>(rule.factor_a);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  for (uint32_t i = 0; i < op.out[0].elements; ++i)
    y[i] = ClampCode(rule, EncodeReal(x[i], factor));
  return WithoutScale(machine, op);
}

// mask: sums of rows
DspStatus RequantizeCodes(Machine& machine, const DspOp& op) {
  const CodeRule rule = *machine.data<CodeRule>(op.in[1]);
  const auto* channels = reinterpret_cast<const CodeChannel*>(machine.data<CodeRule>(op.in[1]) + 1);
  const bool is_one = op.in[1].elements == kCodeRuleWords + kCodeChannelWords;
  const int inner = op.y.h * op.y.w;
  const int groups = op.mask.data != 0 ? static_cast<int>(op.mask.elements) / (op.y.n * inner) : 1;
  const int group_out = op.y.c / groups;
  Plane p;
  p.count = inner;
  for (int n = 0; n < op.y.n; ++n) {
    for (int c = 0; c < op.y.c; ++c) {
      const uint32_t at = static_cast<uint32_t>(n * op.y.c + c) * inner;
      p.channel = channels[is_one ? 0 : c];
      if (op.in[0].bytes == 1) {
        p.codes = machine.data<int8_t>(op.in[0]) + at;
      } else {
        p.sums = machine.data<int32_t>(op.in[0]) + at;
      }
      if (op.mask.data != 0) {
        p.row_sums = machine.data<int32_t>(op.mask) + (n * groups + c / group_out) * inner;
      }
      if (op.out[0].bytes == 1) {
        p.y = machine.data<int8_t>(op.out[0]) + at;
      } else {
        p.given = machine.data<int32_t>(op.out[0]) + at;
      }
      if (inner >= kVectorPlane) {
        RequantizePlane(rule, p);
      } else {
        for (int i = 0; i < inner; ++i) RequantizeOne(rule, p, i);
      }
    }
  }
  return WithoutScale(machine, op);
}

// mask: the rule
DspStatus AddCodes(Machine& machine, const DspOp& op) {
  const CodeRule rule = *machine.data<CodeRule>(op.mask);
  const int8_t* a = machine.data<int8_t>(op.in[0]);
  const int8_t* b = machine.data<int8_t>(op.in[1]);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  const Vector zero_a = Splat(static_cast<int32_t>(rule.zero_a));
  const Vector zero_b = Splat(static_cast<int32_t>(rule.zero_b));
  const auto count = static_cast<int>(op.out[0].elements);
  for (int at = 0; at < count; at += kVectorBytes) {
    const Words left = WordsOfBytes(Load(a + at)), right = WordsOfBytes(Load(b + at));
    Words codes;
    for (int i = 0; i < 4; ++i) {
      const Wide sum = AddWide(
          MultiplyWide(Q6_Vw_vsub_VwVw(left.v[i], zero_a), static_cast<int32_t>(rule.factor_a)),
          MultiplyWide(Q6_Vw_vsub_VwVw(right.v[i], zero_b), static_cast<int32_t>(rule.factor_b)));
      codes.v[i] = RoundHalfAwayWide(sum, static_cast<int>(rule.shift));
    }
    StoreBytes(y + at, ClampCodes(rule, codes), Min(kVectorBytes, count - at));
  }
  return WithoutScale(machine, op);
}

DspStatus PadCodes(Machine& machine, const DspOp& op) {
  const DspImages &x = op.x, &y = op.y;
  const int top = (y.h - x.h) / 2, left = (y.w - x.w) / 2;
  const int8_t* from = machine.data<int8_t>(op.in[0]);
  int8_t* to = machine.data<int8_t>(op.out[0]);
  memset(to, static_cast<int>(machine.data<CodeRule>(op.in[1])->zero_a), op.out[0].elements);
  for (int plane = 0; plane < x.n * x.c; ++plane) {
    for (int h = 0; h < x.h; ++h, from += x.w) {
      memcpy(to + (plane * y.h + top + h) * y.w + left, from, x.w);
    }
  }
  return WithoutScale(machine, op);
}

DspStatus CodesToChannelsFirst(Machine& machine, const DspOp& op) {
  const int8_t* x = machine.data<int8_t>(op.in[0]);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  const int inner = op.y.h * op.y.w;
  for (int n = 0; n < op.y.n; ++n, x += op.y.c * inner) {
    for (int c = 0; c < op.y.c; ++c) {
      for (int p = 0; p < inner; ++p) *y++ = x[p * op.y.c + c];
    }
  }
  return WithoutScale(machine, op);
}

DspStatus CodesToChannelsLast(Machine& machine, const DspOp& op) {
  const int8_t* x = machine.data<int8_t>(op.in[0]);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  const int inner = op.y.h * op.y.w;
  for (int n = 0; n < op.y.n; ++n, x += op.y.c * inner) {
    for (int p = 0; p < inner; ++p) {
      for (int c = 0; c < op.y.c; ++c) *y++ = x[c * inner + p];
    }
  }
  return WithoutScale(machine, op);
}

}  // namespace runnel::hexagon
