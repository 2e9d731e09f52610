// Codes of grids and their products.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ir/arithmetic/code_grid.h"
#include "tests/conformance/case_maker.h"

namespace runnel {

CaseOperand Maker::Codes(const Shape& shape) {
  CaseOperand operand = Integers(Storage::kScratch, DType::kInt8, shape);
  for (std::byte& code : operand.bytes) code = static_cast<std::byte>(Pick(0, 255));
  return operand;
}

CaseOperand Maker::CodeGridsOf(int64_t count, int bits) {
  CaseOperand operand = Floats(Storage::kScratch, {CodeGridFloats(count)});
  float* grids = reinterpret_cast<float*>(operand.bytes.data());
  grids[0] = static_cast<float>(bits);
  for (int64_t i = 1; i <= count; ++i) grids[i] = std::abs(grids[i]) / 100 + 1e-6f;
  return operand;
}

void Maker::Coding() {
  const bool is_error = case_.code == OpCode::kAffineErrorCodes;
  const bool is_weight = case_.code == OpCode::kAffineWeightCodes;
  case_.grid.bits = static_cast<int>(Pick(2, is_error ? 16 : 8));
  case_.grid.is_gradient = is_error;
  case_.grid.of_tensor = is_weight && Pick(0, 1) == 0;
  if (Pick(0, 1) == 0)
    case_.context.grid_bits = {static_cast<int>(Pick(2, 8)), static_cast<int>(Pick(2, 16))};
  Shape shape = AnyShape();
  int64_t grids = 1;
  if (is_weight) {
    case_.attributes.kind = OpKind::kConv;
    case_.attributes.kernel = {Pick(1, 3), Pick(1, 3)};
    const std::array<int64_t, 2> kernel = case_.attributes.kernel;
    // Of linear layers, and of convolutions along one axis, which have a second size all the same.
    shape = {Pick(1, 20), Pick(1, 19), kernel[0], kernel[1]};
    if (seed_ % 3 == 1) shape = {shape[0], shape[1], kernel[0]};
    if (seed_ % 3 == 2) shape = {shape[0], shape[1] * kernel[0] * kernel[1]};
    if (!case_.grid.of_tensor) grids = shape[0];
  }
  CaseOperand values = Floats(is_weight ? Storage::kParameters : Storage::kScratch, shape);
  if (Pick(0, 5) == 0)
    reinterpret_cast<float*>(values.bytes.data())[Pick(0, shape.elements() - 1)] =
        std::numeric_limits<float>::quiet_NaN();
  In(std::move(values));
  const bool keeps = !is_weight && !is_error && Pick(0, 3) > 0;
  CaseOperand range = Floats(Storage::kStatistics, {2});
  float* kept = reinterpret_cast<float*>(range.bytes.data());
  kept[0] = -std::abs(kept[0]);
  kept[1] = Pick(0, 2) == 0 ? 0 : std::abs(kept[1]);
  if (kept[1] == 0) kept[0] = 0;
  if (keeps && case_.part() == Part::kForwardEval) In(range);
  CaseOperand codes = Codes(shape), low = Codes(shape);
  // In memory that leaves a stage they lie row-major.
  codes.storage = low.storage = Storage::kOutput;
  codes.written = low.written = range.written = true;
  Out(std::move(codes));
  Out(Result(Storage::kScratch, {CodeGridFloats(grids)}, {}));
  // Nobody writes the lower parts of codes that have one part.
  if (is_error && IsWide(case_.grid.BitsAt(case_.context.grid_bits))) Out(std::move(low));
  if (keeps && case_.part() == Part::kForward) Out(std::move(range));
}

void Maker::ProductOfCodes() {
  Shape x = {Pick(1, 20), Pick(1, 130)}, y = {x[0], Pick(1, 70)};
  OpSpec& op = case_.attributes;
  op.kind = OpKind::kLinear;
  op.out_channels = y[1];
  int64_t size = x[1];
  // No dilation: seeds of the third kind.
  if (seed_ % 3 != 2 && Pick(0, 3) > 0) {
    y = DrawConv(x);
    size = x[1] / op.groups * op.kernel[0] * (x.rank() == 4 ? op.kernel[1] : 1);
  }
  const Shape weight = {y[1], size};
  const bool has_bias = Pick(0, 1) == 0;
  // Levels of the recipe may have more bits than the grids: what lies in memory counts.
  const int bits = static_cast<int>(Pick(2, 8)), error_bits = static_cast<int>(Pick(2, 16));
  const auto low = [&] {
    if (IsWide(error_bits) || Pick(0, 1) == 0) In(Codes(y));
  };
  if (case_.part() == Part::kForward) {
    In(Codes(x));
    In(Codes(weight));
    In(CodeGridsOf(1, bits));
    In(CodeGridsOf(y[1], static_cast<int>(Pick(2, 8))));
    if (has_bias) In(Floats(Storage::kParameters, {y[1]}));
    Out(Result(Storage::kOutput, y, {}));
  } else if (case_.part() == Part::kInputGradient) {
    In(Codes(y));
    In(Codes(weight));
    In(CodeGridsOf(1, error_bits));
    In(CodeGridsOf(1, bits));
    low();
    Out(Result(Storage::kInputGradient, x, {}));
  } else {
    In(Codes(y));
    In(Codes(x));
    In(CodeGridsOf(1, error_bits));
    In(CodeGridsOf(1, bits));
    low();
    Out(Result(Storage::kGradients, weight, {}));
    if (has_bias) Out(Result(Storage::kGradients, {y[1]}, {}));
  }
}

bool Maker::MakeOfCodeGrids() {
  switch (case_.code) {
    case OpCode::kAffineWeightCodes:
    case OpCode::kAffineActivationCodes:
    case OpCode::kAffineActivationCodesEval:
    case OpCode::kAffineErrorCodes:
      Coding();
      return true;
    case OpCode::kCodesForward:
    case OpCode::kCodesInputGradient:
    case OpCode::kCodesWeightGradient:
      ProductOfCodes();
      return true;
    default:
      return false;
  }
}

}  // namespace runnel
