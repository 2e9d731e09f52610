// Max pools of windows of 2 x 2 side by side, which most models have and random windows seldom are.

#include "proto/base/random.h"
#include "tests/conformance/integer_cases.h"

namespace runnel {
namespace {

// Mantissas, of which many are equal; or numbers of taps.
Tensor Draw(const CounterRandom& random, const Shape& shape, DType dtype) {
  Tensor tensor = dtype == DType::kInt8 ? ScaledTensor(shape, dtype) : Zeros(shape, dtype);
  tensor.storage = Storage::kInput;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const auto element = static_cast<uint64_t>(i);
    if (dtype == DType::kUInt8) {
      tensor.data<uint8_t>()[i] = static_cast<uint8_t>(random.Below(element, 4));
    } else {
      const int value = static_cast<int>(random.Below(element, 255)) - 127;
      tensor.data<int8_t>()[i] = static_cast<int8_t>(i % 3 == 0 ? value : value / 64);
    }
  }
  if (dtype == DType::kInt8) TailOf(tensor.bytes.data(), dtype, shape).exponent = -3;
  return tensor;
}

}  // namespace

IntegerCase MakeQuarterPoolCase(OpCode code, const Shape& x, bool keeps_taps, uint64_t seed) {
  IntegerCase made;
  made.code = code;
  made.attributes.kind = OpKind::kMaxPool;
  made.attributes.kernel = made.attributes.stride = {2, 2};
  const Shape y = {x[0], x[1], x[2] / 2, x[3] / 2};
  const bool forward = code == OpCode::kInt8MaxPoolForward;
  const CounterRandom values(seed, RandomPurpose::kTest, 0, 3),
      taps(seed, RandomPurpose::kTest, 1, 3);
  made.inputs.push_back(Draw(values, forward ? x : y, DType::kInt8));
  if (!forward) made.inputs.push_back(Draw(taps, y, DType::kUInt8));
  made.outputs.push_back(ScaledTensor(forward ? y : x, DType::kInt8));
  if (forward && keeps_taps) made.outputs.push_back(Zeros(y, DType::kUInt8));
  for (Tensor& output : made.outputs) output.storage = Storage::kOutput;
  return made;
}

}  // namespace runnel
