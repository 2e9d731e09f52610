// The table of kernels, and what there is of a C library.

#include "kernels/backends/hexagon/dsp/hvx.h"
#include "kernels/backends/hexagon/dsp/machine.h"

namespace runnel::hexagon {

Kernel FindKernel(DspCode code) {
  struct Row {
    DspCode code;
    Kernel kernel;
  };
  static constexpr Row kRows[] = {
      {DspCode::kCopy, Copy},
      {DspCode::kQuantize, Quantize},
      {DspCode::kRescale, Rescale},
      {DspCode::kRelu, Relu},
      {DspCode::kReluGradient, ReluGradient},
      {DspCode::kDropout, Dropout},
      {DspCode::kAdd, Add},
      {DspCode::kConvForward, ConvForward},
      {DspCode::kConvInputGradient, ConvInputGradient},
      {DspCode::kConvWeightGradient, ConvWeightGradient},
      {DspCode::kLinearForward, LinearForward},
      {DspCode::kLinearInputGradient, LinearInputGradient},
      {DspCode::kLinearWeightGradient, LinearWeightGradient},
      {DspCode::kMaxPoolForward, MaxPoolForward},
      {DspCode::kMaxPoolInputGradient, MaxPoolInputGradient},
      {DspCode::kAvgPoolForward, AvgPoolForward},
      {DspCode::kAvgPoolInputGradient, AvgPoolInputGradient},
      {DspCode::kGlobalAvgPoolForward, GlobalAvgPoolForward},
      {DspCode::kGlobalAvgPoolInputGradient, GlobalAvgPoolInputGradient},
      {DspCode::kAddScaledGradient, AddScaledGradient},
      {DspCode::kUpdate, Update},
      {DspCode::kLossGradient, LossGradient},
      {DspCode::kEncodeCodes, EncodeCodes},
      {DspCode::kRequantizeCodes, RequantizeCodes},
      {DspCode::kAddCodes, AddCodes},
      {DspCode::kPadCodes, PadCodes},
      {DspCode::kCodesToChannelsFirst, CodesToChannelsFirst},
      {DspCode::kCodesToChannelsLast, CodesToChannelsLast},
  };
  for (const Row& row : kRows) {
    if (row.code == code) return row.kernel;
  }
  return nullptr;
}

extern "C" {

void* memcpy(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  for (; bytes >= kVectorBytes; bytes -= kVectorBytes) {
    Store(target, Load(source));
    target += kVectorBytes;
    source += kVectorBytes;
  }
  while (bytes-- > 0) *target++ = *source++;
  return to;
}

void* memset(void* to, int value, size_t bytes) {
  auto* target = static_cast<uint8_t*>(to);
  const Vector vector = SplatBytes(value);
  for (; bytes >= kVectorBytes; bytes -= kVectorBytes) {
    Store(target, vector);
    target += kVectorBytes;
  }
  while (bytes-- > 0) *target++ = static_cast<uint8_t>(value);
  return to;
}

// The compiler calls it in place of memcpy where it knows more of the operands.
void __hexagon_memcpy_likely_aligned_min32bytes_mult8bytes(void* to, const void* from,
                                                           size_t bytes) {
  memcpy(to, from, bytes);
}

// Divisions that the compiler asks for: the processor has none.
uint32_t __hexagon_udivsi3(uint32_t numerator, uint32_t denominator) {
  uint32_t quotient = 0;
  if (denominator == 0 || denominator > numerator) return 0;
  for (int bit = __builtin_clz(denominator) - __builtin_clz(numerator); bit >= 0; --bit) {
    if ((numerator >> bit) < denominator) continue;
    numerator -= denominator << bit;
    quotient |= 1u << bit;
  }
  return quotient;
}
uint32_t __hexagon_umodsi3(uint32_t numerator, uint32_t denominator) {
  return numerator - denominator * __hexagon_udivsi3(numerator, denominator);
}
int32_t __hexagon_divsi3(int32_t numerator, int32_t denominator) {
  const uint32_t quotient =
      __hexagon_udivsi3(numerator < 0 ? 0u - static_cast<uint32_t>(numerator) : numerator,
                        denominator < 0 ? 0u - static_cast<uint32_t>(denominator) : denominator);
  return static_cast<int32_t>((numerator < 0) != (denominator < 0) ? 0u - quotient : quotient);
}
int32_t __hexagon_modsi3(int32_t numerator, int32_t denominator) {
  return numerator - denominator * __hexagon_divsi3(numerator, denominator);
}

}  // extern "C"

}  // namespace runnel::hexagon
