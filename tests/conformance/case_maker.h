#pragma once

// Draws the cases of one instruction (backend_cases.h). Private to the files that define it.

#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "proto/base/random.h"
#include "tests/conformance/backend_cases.h"
#include "tests/conformance/named_shapes.h"

namespace runnel {

// Draws one case.
class Maker {
 public:
  Maker(OpCode code, uint64_t seed)
      : random_(seed, RandomPurpose::kTest, static_cast<uint64_t>(code), 0), seed_(seed) {
    case_.code = code;
    case_.context.run_seed = seed + 17;
    case_.context.sequence = Sequence(Pick(0, 1000));
    case_.context.step_labels = Pick(1, 300);
    case_.context.accumulate = Pick(0, 1) == 1;
    case_.context.learning_rate = 0.05;
    case_.context.momentum = 0.9;
    case_.context.weight_decay = 5e-4;
  }

  std::optional<Case> Make();

 private:
  int64_t Pick(int64_t low, int64_t high) {
    return low + random_.Below(next_++, static_cast<uint32_t>(high - low + 1));
  }
  int64_t Channels() {
    constexpr int64_t kChoices[] = {1, 2, 3, 5, 8, 12, 16, 17, 24, 33, 64, 67, 90};
    return kChoices[Pick(0, std::size(kChoices) - 1)];
  }
  // (N, C, L) or (N, C, H, W), odd sizes welcome.
  Shape Image() {
    if (Pick(0, 2) == 0) return {Pick(1, 5), Channels(), Pick(1, 40)};
    return {Pick(1, 5), Channels(), Pick(1, 11), Pick(1, 11)};
  }
  Shape AnyShape() { return Pick(0, 3) == 0 ? Shape{Pick(1, 9), Channels()} : Image(); }

  CaseOperand Floats(Storage storage, const Shape& shape, double spread = 1, double center = 0) {
    CaseOperand operand;
    operand.storage = storage;
    operand.shape = shape;
    operand.bytes.resize(static_cast<size_t>(shape.elements()) * sizeof(float));
    float* values = reinterpret_cast<float*>(operand.bytes.data());
    for (int64_t i = 0; i < shape.elements(); ++i) {
      values[i] = static_cast<float>(center + spread * random_.Normal(next_++));
    }
    return operand;
  }
  CaseOperand Result(Storage storage, const Shape& shape, Bound bound) {
    CaseOperand operand = Floats(storage, shape);
    operand.written = true;
    operand.bound = bound;
    return operand;
  }
  CaseOperand Integers(Storage storage, DType dtype, const Shape& shape) {
    CaseOperand operand;
    operand.storage = storage;
    operand.dtype = dtype;
    operand.shape = shape;
    operand.bytes.resize(static_cast<size_t>(shape.elements()) * SizeOf(dtype));
    return operand;
  }
  CaseOperand Metrics(Bound bound) {
    CaseOperand operand = Integers(Storage::kMetrics, DType::kUInt8, {16});
    operand.written = operand.is_double = true;
    operand.bound = bound;
    return operand;
  }
  // kernel, stride, padding that fit the shape.
  Shape DrawWindow(const Shape& x, OpKind kind);
  // A tap of the window of y's element e that does not lie in the padding.
  std::byte DrawTap(const Shape& x, const Shape& y, int64_t e);
  static Bound Sum(double terms) { return {BoundKind::kMagnitude, terms + 4, 0}; }

  void Conv();
  void Linear();
  // The instructions of token_cases.cc; false for another.
  bool MakeOfTokens();
  void Embedding();
  // Those of branch_cases.cc.
  bool MakeOfBranches();
  void Product();
  void ChannelParts(bool joins);
  void Slice();
  void Shuffle();
  void Samples();
  void LstmCell();
  void SamplesThatLearn(const Shape& x);
  void LayerNorm();
  void Attention();
  void BatchNorm();
  void BatchNormGradient();
  void Elementwise(int inputs);
  void DropoutCase();
  void Pool();
  void GlobalPool();
  void Loss();
  void Update();
  CaseOperand Weights(double* largest);
  void GridWeight();
  void GridWeightGradient();
  void GridElements(int inputs);
  void AffineGrids();
  void SharedGrids();
  void ChunkedProduct(bool is_conv);
  void RoundedUpdate();
  bool MakeOfGrids();  // false: the code has no grid
  // Those of code_grid_cases.cc.
  bool MakeOfCodeGrids();
  void DrawGridRule();
  Shape DrawWeights();
  Shape ManyPatches(Shape& x);
  void Coding();
  void ProductOfCodes();
  void Masks();
  void PairsOfCodes();
  // Codes of a grid of so many bits; of more than 8 either part.
  CaseOperand Codes(const Shape& shape, int bits = 8);
  // samples: of codes that may lie packed by a gate, with a row for a grid at each; 0: of weights.
  CaseOperand CodeGridsOf(int64_t count, int bits, int64_t samples = 0);
  // Those of fixed_cases.cc.
  bool MakeOfFixedPoints();
  void Widths();
  void Compensations();
  void FixedUpdate();

  void In(CaseOperand operand) { case_.inputs.push_back(std::move(operand)); }
  void Out(CaseOperand operand) { case_.outputs.push_back(std::move(operand)); }

  bool is_named() const { return seed_ >= kFirstNamedSeed; }
  // x and the window of a convolution; gives y.
  Shape DrawConv(Shape& x);

  CounterRandom random_;
  const uint64_t seed_;
  uint64_t next_ = 0;
  Case case_;
};

}  // namespace runnel
