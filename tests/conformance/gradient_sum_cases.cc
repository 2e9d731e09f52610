// Sums of gradients at the ends of what they may be: any difference of exponents, the largest
// values, lengths beside those of vectors.

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "proto/base/random.h"
#include "tests/conformance/integer_cases.h"

namespace runnel {
namespace {

// Powers of two up to the limit and what lies beside them, the limit, and random numbers of all
// sizes; each with either sign.
class Values {
 public:
  explicit Values(uint64_t seed) : random_(seed, RandomPurpose::kTest, 0, 2) {}

  int64_t Draw(int64_t limit) {
    const int64_t power = int64_t{1} << random_.Below(next_++, 63);
    const int64_t random = (int64_t{random_.Bits(next_)} << 31 | random_.Bits(next_ + 1) >> 1) >>
                           random_.Below(next_ + 2, 63);
    next_ += 3;
    const int64_t choices[] = {0, limit, limit - 1, power - 1, power, power + 1, random};
    const int64_t value = std::min(choices[random_.Below(next_++, std::size(choices))], limit);
    return random_.Below(next_++, 2) == 0 ? value : -value;
  }

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

template <typename T>
Tensor Operand(Storage storage, const GradientSumShape& shape, DType dtype, int64_t limit,
               int32_t exponent, Values& values) {
  const Shape elements = {shape.elements};
  Tensor tensor = ScaledTensor(elements, dtype);
  tensor.storage = storage;
  // Larger than small elements: what lies behind the last one is in no maximum.
  std::fill(tensor.bytes.begin() + shape.elements * sizeof(T), tensor.bytes.end(), std::byte{0x7f});
  int64_t max_abs = 0;
  for (int64_t i = 0; i < shape.elements; ++i) {
    const int64_t value = std::min<int64_t>(values.Draw(limit), std::numeric_limits<T>::max());
    tensor.data<T>()[i] = static_cast<T>(value);
    max_abs = std::max(max_abs, std::abs(value));
  }
  TailOf(tensor.bytes.data(), dtype, elements) = {.exponent = exponent, .max_abs = max_abs};
  return tensor;
}

}  // namespace

IntegerCase MakeUpdateCase(Rounding rounding, int64_t max_abs, int64_t elements, uint64_t seed) {
  IntegerCase made;
  made.code = OpCode::kNitiUpdate;
  made.rule.rounding = rounding;
  made.context.gradient_bits = {7, 7};
  Values values(seed);
  const GradientSumShape shape = {.elements = elements};
  made.inputs.push_back(Operand<int8_t>(Storage::kParameters, shape, DType::kInt8, 127, 0, values));
  made.inputs.push_back(
      Operand<int64_t>(Storage::kGradients, shape, DType::kInt64, max_abs, 0, values));
  made.outputs.push_back(
      Operand<int8_t>(Storage::kNewParameters, shape, DType::kInt8, 127, 0, values));
  return made;
}

IntegerCase MakeGradientSumCase(const GradientSumShape& shape, uint64_t seed) {
  IntegerCase made;
  made.code = OpCode::kAddScaledGradient;
  made.context.accumulate = shape.accumulates;
  Values values(seed);
  // The one with the smaller exponent has all its bits, the other what no sum with that carries
  // beyond 64 bits.
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const bool narrow = shape.gradient == DType::kInt32;
  const int64_t difference = std::abs(shape.difference);
  const int shift = static_cast<int>(std::min<int64_t>(difference, 63));
  const int64_t widest = narrow ? int64_t{1} << 31 : kMost;
  int64_t gradient = widest, total = kMost;
  if (shape.accumulates && shape.difference >= 0) {
    gradient = difference == 0 ? std::min(widest, kMost / 2) : widest;
    total = kMost - (gradient >> shift);
  } else if (shape.accumulates) {
    gradient = std::min(widest, kMost - (kMost >> shift));
  }
  if (shape.small) gradient = total = 100;
  const auto exponent = static_cast<int32_t>(shape.difference / 2);
  made.inputs.push_back(
      narrow ? Operand<int32_t>(Storage::kScratch, shape, DType::kInt32, gradient,
                                static_cast<int32_t>(exponent - shape.difference), values)
             : Operand<int64_t>(Storage::kScratch, shape, DType::kInt64, gradient,
                                static_cast<int32_t>(exponent - shape.difference), values));
  made.outputs.push_back(
      Operand<int64_t>(Storage::kGradients, shape, DType::kInt64, total, exponent, values));
  return made;
}

}  // namespace runnel
