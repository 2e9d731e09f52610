// Codes of grids and their products.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/ir/arithmetic/code_grid.h"
#include "kernels/ir/arithmetic/code_pairs.h"
#include "tests/conformance/case_maker.h"

namespace runnel {

CaseOperand Maker::Codes(const Shape& shape, int bits) {
  CaseOperand operand = Integers(Storage::kScratch, DType::kInt8, shape);
  const int64_t most = (int64_t{1} << std::min(bits, 8)) - 1, centre = (most + 1) / 2;
  for (std::byte& code : operand.bytes) {
    // Often an end.
    const int64_t drawn = Pick(-most / 4, most + most / 4);
    code = static_cast<std::byte>(std::clamp<int64_t>(drawn, 0, most) - centre);
  }
  return operand;
}

CaseOperand Maker::CodeGridsOf(int64_t count, int bits, int64_t samples) {
  const bool is_packed = samples > 0 && Pick(0, 2) == 0;
  CaseOperand operand =
      Floats(Storage::kScratch,
             is_packed ? Shape({samples, CodeGridFloats(count)}) : Shape({CodeGridFloats(count)}));
  float* grids = reinterpret_cast<float*>(operand.bytes.data());
  grids[0] = static_cast<float>(bits);
  for (int64_t i = 1; i <= count; ++i) grids[i] = std::abs(grids[i]) / 100 + 1e-6f;
  return operand;
}

namespace {

enum class Coded { kWeight, kActivation, kError };

Coded CodedBy(OpCode code) {
  switch (code) {
    case OpCode::kAffineWeightCodes:
    case OpCode::kSymmetricWeightCodes:
      return Coded::kWeight;
    case OpCode::kAffineErrorCodes:
    case OpCode::kSymmetricErrorCodes:
    case OpCode::kClippedErrorCodes:
      return Coded::kError;
    default:
      return Coded::kActivation;
  }
}

bool IsSymmetric(OpCode code) {
  return code == OpCode::kSymmetricWeightCodes || code == OpCode::kSymmetricActivationCodes ||
         code == OpCode::kSymmetricActivationCodesEval || code == OpCode::kSymmetricErrorCodes ||
         code == OpCode::kClippedErrorCodes;
}

}  // namespace

// Its bits, its draws, and the level.
void Maker::DrawGridRule() {
  const Coded coded = CodedBy(case_.code);
  case_.grid.is_gradient = coded == Coded::kError;
  if (IsSymmetric(case_.code)) {
    case_.grid.bits = 8;
    case_.grid.draws = coded == Coded::kError ? 0 : static_cast<int>(Pick(0, 2));
    case_.grid.to_nearest = Pick(0, 3) == 0;
    case_.grid.clip = static_cast<float>(Pick(1, 20)) / 20;
    return;
  }
  case_.grid.bits = static_cast<int>(Pick(2, coded == Coded::kError ? 16 : 8));
  case_.grid.of_tensor = coded == Coded::kWeight && Pick(0, 1) == 0;
  if (Pick(0, 1) == 0)
    case_.context.grid_bits = {static_cast<int>(Pick(2, 8)), static_cast<int>(Pick(2, 16))};
}

// Of linear layers, and of convolutions along one axis, which have a second size all the same.
Shape Maker::DrawWeights() {
  case_.attributes.kind = OpKind::kConv;
  case_.attributes.kernel = {Pick(1, 3), Pick(1, 3)};
  const std::array<int64_t, 2> kernel = case_.attributes.kernel;
  const Shape shape = {Pick(1, 20), Pick(1, 19), kernel[0], kernel[1]};
  if (seed_ % 3 == 1) return {shape[0], shape[1], kernel[0]};
  if (seed_ % 3 == 2) return {shape[0], shape[1] * kernel[0] * kernel[1]};
  return shape;
}

void Maker::Coding() {
  const Coded coded = CodedBy(case_.code);
  DrawGridRule();
  const Shape shape = coded == Coded::kWeight ? DrawWeights() : AnyShape();
  const bool by_channel =
      coded == Coded::kWeight && !case_.grid.of_tensor && !IsSymmetric(case_.code);
  CaseOperand values =
      Floats(coded == Coded::kWeight ? Storage::kParameters : Storage::kScratch, shape);
  if (Pick(0, 5) == 0)
    reinterpret_cast<float*>(values.bytes.data())[Pick(0, shape.elements() - 1)] =
        std::numeric_limits<float>::quiet_NaN();
  // Of zeros there is no unit.
  if (Pick(0, 9) == 0) std::fill(values.bytes.begin(), values.bytes.end(), std::byte{0});
  In(std::move(values));
  const bool keeps = coded == Coded::kActivation && Pick(0, 3) > 0;
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
  Out(Result(Storage::kScratch, {CodeGridFloats(by_channel ? shape[0] : 1)}, {}));
  // Nobody writes the lower parts of codes that have one part.
  if (case_.code == OpCode::kAffineErrorCodes && IsWide(case_.grid.BitsAt(case_.context.grid_bits)))
    Out(std::move(low));
  if (case_.code == OpCode::kClippedErrorCodes) Out(Result(Storage::kScratch, {1}, {}));
  if (keeps && case_.part() == Part::kForward) Out(std::move(range));
}

// A dilated convolution whose sources, side by side, are too long for one piece: the last sample is a
// piece of its own.
Shape Maker::ManyPatches(Shape& x) {
  x = {29, 64, 8, 8};
  OpSpec& op = case_.attributes;
  op.kind = OpKind::kConv;
  op.kernel = {3, 3};
  op.dilation = {2, 2};
  op.padding = {2, 2};
  op.out_channels = 9;
  return {x[0], op.out_channels, x[2], x[3]};
}

void Maker::ProductOfCodes() {
  Shape x = {Pick(1, 20), Pick(1, 130)}, y = {x[0], Pick(1, 70)};
  OpSpec& op = case_.attributes;
  op.kind = OpKind::kLinear;
  op.out_channels = y[1];
  int64_t size = x[1];
  if (seed_ % 100 == 42) {
    y = ManyPatches(x);
    size = x[1] * op.kernel[0] * op.kernel[1];
  } else if (Pick(0, 3) > 0) {
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
    const int weight_bits = static_cast<int>(Pick(2, 8));
    In(Codes(x, bits));
    In(Codes(weight, weight_bits));
    In(CodeGridsOf(1, bits, x[0]));
    In(CodeGridsOf(y[1], weight_bits));
    if (has_bias) In(Floats(Storage::kParameters, {y[1]}));
    Out(Result(Storage::kOutput, y, {}));
  } else if (case_.part() == Part::kInputGradient) {
    In(Codes(y, error_bits));
    In(Codes(weight, bits));
    In(CodeGridsOf(1, error_bits, x[0]));
    In(CodeGridsOf(1, bits));
    low();
    Out(Result(Storage::kInputGradient, x, {}));
  } else {
    In(Codes(y, error_bits));
    In(Codes(x, bits));
    In(CodeGridsOf(1, error_bits, x[0]));
    In(CodeGridsOf(1, bits, x[0]));
    low();
    Out(Result(Storage::kGradients, weight, {}));
    if (has_bias) Out(Result(Storage::kGradients, {y[1]}, {}));
  }
}

// Bits stand in the order of the values: of shapes that lie alike in all layouts.
void Maker::Masks() {
  const bool is_gradient = case_.code == OpCode::kMaskedInputGradient;
  const Shape shape = Pick(0, 1) == 0 ? Shape({Pick(1, 9), Channels()})
                                      : Shape({Pick(1, 5), 1, Pick(1, 11), Pick(1, 40)});
  CaseOperand values = Floats(Storage::kScratch, shape, 3);
  // What a ReLU gives where it holds.
  auto* floats = reinterpret_cast<float*>(values.bytes.data());
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const int64_t kind = Pick(0, 4);
    if (kind < 2) floats[i] = kind == 0 ? 0.0f : 6.0f;
  }
  CaseOperand mask = Integers(Storage::kScratch, DType::kUInt8, {(shape.elements() + 7) / 8});
  for (std::byte& bits : mask.bytes) bits = static_cast<std::byte>(Pick(0, 255));
  In(std::move(values));
  if (is_gradient) {
    In(std::move(mask));
    Out(Result(Storage::kScratch, shape, {}));
    return;
  }
  mask.written = true;
  Out(std::move(mask));
}

// Of several groups, and of what is left.
void Maker::PairsOfCodes() {
  const Shape shape = Pick(0, 1) == 0 ? Shape({Pick(1, 9), Channels()})
                                      : Shape({Pick(1, 5), 1, Pick(1, 11), Pick(1, 40)});
  CaseOperand codes = Codes(shape, kPairedBits);
  CaseOperand packed = Integers(Storage::kScratch, DType::kUInt8, {PairedBytes(shape.elements())});
  for (std::byte& pair : packed.bytes) pair = static_cast<std::byte>(Pick(0, 255));
  const bool packs = case_.code == OpCode::kPackCodes;
  (packs ? packed : codes).written = true;
  In(std::move(packs ? codes : packed));
  Out(std::move(packs ? packed : codes));
}

bool Maker::MakeOfCodeGrids() {
  switch (case_.code) {
    case OpCode::kPackCodes:
    case OpCode::kUnpackCodes:
      PairsOfCodes();
      return true;
    case OpCode::kReluMask:
    case OpCode::kRelu6Mask:
    case OpCode::kMaskedInputGradient:
      Masks();
      return true;
    case OpCode::kAffineWeightCodes:
    case OpCode::kAffineActivationCodes:
    case OpCode::kAffineActivationCodesEval:
    case OpCode::kAffineErrorCodes:
    case OpCode::kSymmetricWeightCodes:
    case OpCode::kSymmetricActivationCodes:
    case OpCode::kSymmetricActivationCodesEval:
    case OpCode::kSymmetricErrorCodes:
    case OpCode::kClippedErrorCodes:
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
