#include "proto/base/training/precision/operand_bits.h"

#include "absl/strings/numbers.h"

namespace runnel {
namespace {

using Parameters = absl::Span<const std::string>;

constexpr double kByte = 8, kHalf = 16, kFull = 32;

// What a name's parameter says; patterns see to it that it is a number.
double NumberOf(const std::string& parameter) {
  int number = 0;
  return absl::SimpleAtoi(parameter, &number) ? number : kFull;
}

// Weights of 1 bit and operands in FP32 have no levels.
double AtLevel(const std::string& parameter, int of_level) {
  const double bits = NumberOf(parameter);
  return of_level == 0 || bits == kFull || bits == 1 ? bits : of_level;
}

}  // namespace

OperandBits DorefaOperands(Parameters parameters, const ProductSite& site, const GridBits& level) {
  if (site.is_end()) return {};
  return BitsOfAll(AtLevel(parameters[0], level.forward), AtLevel(parameters[1], level.forward),
                   AtLevel(parameters[2], level.backward));
}

OperandBits SbmOperands(Parameters parameters, const ProductSite& site, const GridBits& level) {
  if (site.place == ProductPlace::kDepthwise)
    return BitsOfAll(kSbmDepthwise.forward, kSbmDepthwise.forward, kSbmDepthwise.backward);
  return BitsOfAll(AtLevel(parameters[0], level.forward), AtLevel(parameters[1], level.forward),
                   AtLevel(parameters[2], level.backward));
}

OperandBits SbmRangeOperands(Parameters parameters, const ProductSite& /*site*/,
                             const GridBits& /*level*/) {
  OperandBits bits =
      BitsOfAll(NumberOf(parameters[0]), NumberOf(parameters[1]), NumberOf(parameters[2]));
  bits.gradient_for_weights = kHalf;
  return bits;
}

OperandBits MlsOperands(Parameters parameters, const ProductSite& site, const GridBits& /*level*/) {
  if (site.is_end()) return {};
  const double bits = 1 + NumberOf(parameters[0]) + NumberOf(parameters[1]);
  return BitsOfAll(bits, bits, bits);
}

OperandBits OctoOperands(Parameters /*parameters*/, const ProductSite& site,
                         const GridBits& /*level*/) {
  return site.is_linear ? OperandBits() : BitsOfAll(kByte, kByte, kByte);
}

OperandBits WageubnOperands(Parameters parameters, const ProductSite& site,
                            const GridBits& /*level*/) {
  if (site.is_end()) return {};
  return BitsOfAll(kByte, kByte, parameters.empty() ? kByte : NumberOf(parameters[0]));
}

OperandBits Fp8ChunkOperands(Parameters /*parameters*/, const ProductSite& site,
                             const GridBits& /*level*/) {
  if (site.place == ProductPlace::kFirst) return BitsOfAll(kByte, kHalf, kByte);
  if (site.place == ProductPlace::kLast) return BitsOfAll(kHalf, kHalf, kHalf);
  return BitsOfAll(kByte, kByte, kByte);
}

OperandBits ByteOperands(Parameters /*parameters*/, const ProductSite& /*site*/,
                         const GridBits& /*level*/) {
  return BitsOfAll(kByte, kByte, kByte);
}

OperandBits InnerByteOperands(Parameters /*parameters*/, const ProductSite& site,
                              const GridBits& /*level*/) {
  return site.is_end() ? OperandBits() : BitsOfAll(kByte, kByte, kByte);
}

OperandBits HalfOperands(Parameters /*parameters*/, const ProductSite& /*site*/,
                         const GridBits& /*level*/) {
  return BitsOfAll(kHalf, kHalf, kHalf);
}

}  // namespace runnel
