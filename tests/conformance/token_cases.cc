// Cases of what texts need: embeddings, layer norms, attention.

#include <cstring>
#include <utility>

#include "tests/conformance/case_maker.h"

namespace runnel {

// A row is named about once, twice or not at all.
void Maker::Embedding() {
  const int64_t rows = Pick(1, 60), width = Pick(1, 40);
  const Shape x = {Pick(1, 9), Pick(1, 20)};
  CaseOperand tokens = Integers(Storage::kInput, DType::kInt32, x);
  for (int64_t i = 0; i < x.elements(); ++i)
    reinterpret_cast<int32_t*>(tokens.bytes.data())[i] = static_cast<int32_t>(Pick(0, rows - 1));
  const Shape y = {x[0], x[1], width};
  const bool has_positions = case_.attributes.positions = Pick(0, 1) == 1;
  if (case_.code == OpCode::kEmbeddingForward) {
    In(std::move(tokens));
    In(Floats(Storage::kParameters, {rows, width}));
    if (has_positions) In(Floats(Storage::kParameters, {x[1], width}));
    Out(Result(Storage::kOutput, y, {}));
  } else {
    In(Floats(Storage::kOutputGradient, y));
    In(std::move(tokens));
    // Flat where each update comes right behind its gradient.
    const Shape table = Pick(0, 1) == 0 ? Shape({rows, width}) : Shape({rows * width});
    Out(Result(Storage::kGradients, table, Sum(static_cast<double>(x.elements() + 1))));
    if (!has_positions) return;
    Out(Result(Storage::kGradients, {x[1], width}, Sum(static_cast<double>(x[0] + 1))));
  }
}

// As BatchNorm, but a row may be short: two features that lie close together have a deviation near
// 0, and what is divided by it errs as much.
void Maker::LayerNorm() {
  const int64_t width = Pick(8, 150);
  const Shape x =
      Pick(0, 1) == 0 ? Shape{Pick(1, 90), width} : Shape{Pick(1, 9), Pick(1, 20), width};
  const int64_t rows = x.elements() / width;
  case_.attributes.kind = OpKind::kLayerNorm;
  const Bound bound = {BoundKind::kAbsolute, 64, 60};
  if (case_.code == OpCode::kLayerNormForward) {
    In(Floats(Storage::kInput, x, 1, 0.5));
    In(Floats(Storage::kParameters, {width}, 0.5, 1));
    In(Floats(Storage::kParameters, {width}, 0.5));
    Out(Result(Storage::kOutput, x, bound));
    if (Pick(0, 3) > 0) Out(Result(Storage::kScratch, {2 * rows}, bound));
    return;
  }
  In(Floats(Storage::kOutputGradient, x));
  In(Floats(Storage::kInput, x, 1, 0.5));
  In(Floats(Storage::kParameters, {width}, 0.5, 1));
  In(Floats(Storage::kScratch, {2 * rows}, 0.2, 1));
  Out(Result(Storage::kInputGradient, x, bound));
  const auto terms = static_cast<double>(rows);
  Out(Result(Storage::kScratch, {2 * width}, {BoundKind::kAbsolute, 64, 8 * (terms + 8)}));
}

// Scores are below 10, shares that belong to their sums at most 1, values below 6.
void Maker::Attention() {
  OpSpec& op = case_.attributes;
  op.kind = OpKind::kAttention;
  op.heads = Pick(1, 4);
  op.bidirectional = Pick(0, 2) == 0;
  const int64_t features = op.heads * Pick(4, 40);
  const Shape x = {Pick(1, 3), Pick(1, 70), 3 * features}, y = {x[0], x[1], features};
  const Shape sums = {x[0] * op.heads * x[1]};
  const Bound bound = {BoundKind::kAbsolute, 16, 60};
  if (case_.code == OpCode::kAttentionForward) {
    In(Floats(Storage::kInput, x));
    Out(Result(Storage::kOutput, y, bound));
    if (Pick(0, 3) > 0) Out(Result(Storage::kScratch, sums, bound));
    return;
  }
  In(Floats(Storage::kOutputGradient, y));
  In(Floats(Storage::kInput, x));
  In(Floats(Storage::kOutput, y));
  // About what sixty scores add up to.
  In(Floats(Storage::kScratch, sums, 0.5, 4));
  Out(Result(Storage::kInputGradient, x, {BoundKind::kAbsolute, 16, 400}));
}

bool Maker::MakeOfTokens() {
  switch (case_.code) {
    case OpCode::kEmbeddingForward:
    case OpCode::kEmbeddingWeightGradient:
      Embedding();
      return true;
    case OpCode::kLayerNormForward:
    case OpCode::kLayerNormInputGradient:
      LayerNorm();
      return true;
    case OpCode::kAttentionForward:
    case OpCode::kAttentionInputGradient:
      Attention();
      return true;
    default:
      return false;
  }
}

}  // namespace runnel
