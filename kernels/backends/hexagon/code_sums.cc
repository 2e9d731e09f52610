#include "kernels/backends/hexagon/code_sums.h"

#include <algorithm>
#include <utility>

#include "kernels/backends/hexagon/encode.h"

namespace runnel::hexagon {
namespace {

int64_t ElementsOf(const DspImages& images) {
  return int64_t{images.n} * images.c * images.h * images.w;
}

struct OperandSizes {
  int64_t left = 0, right = 0, result = 0;
};

// Elements of the operation's operands.
OperandSizes SizesOf(OpCode code, const DspOp& op) {
  const int64_t x = ElementsOf(op.x), y = ElementsOf(op.y);
  const int64_t weights = int64_t{op.y.c} * op.window.kh * op.window.kw * (op.x.c / op.groups);
  switch (code) {
    case OpCode::kCodesForward:
      return {x, weights, y};
    case OpCode::kCodesInputGradient:
      return {y, weights, x};
    default:
      return {y, x, weights};
  }
}

DspCode DspProductOf(OpCode code, bool is_linear) {
  switch (code) {
    case OpCode::kCodesForward:
      return is_linear ? DspCode::kLinearForward : DspCode::kConvForward;
    case OpCode::kCodesInputGradient:
      return is_linear ? DspCode::kLinearInputGradient : DspCode::kConvInputGradient;
    default:
      return is_linear ? DspCode::kLinearWeightGradient : DspCode::kConvWeightGradient;
  }
}

class SumMaker {
 public:
  SumMaker(OpCode code, const DspOp& whole, const CodeOperands& operands)
      : code_(code), whole_(whole), operands_(operands) {
    sums_.ones_bytes = kTailRoom;
    sums_.sums_bytes = kTailRoom;
  }

  CodeSums Make() {
    const uint32_t ones = operands_.ones + kTailRoom;
    sums_.products = AddOfLeft(whole_, operands_.right);
    const DspOp of_left = ForSumsOfLeft();
    CountOnes(SizesOf(code_, of_left).right);
    sums_.left = AddOfLeft(of_left, ones);
    const DspOp of_right = ForSumsOfRight();
    CountOnes(SizesOf(code_, of_right).left);
    sums_.right.upper = Add(of_right, ones, operands_.right);
    return std::move(sums_);
  }

 private:
  // One channel a group, or one at all, in place of those that only the right operand has.
  DspOp ForSumsOfLeft() const {
    DspOp op = whole_;
    switch (code_) {
      case OpCode::kCodesForward:
        op.y.c = op.groups;
        break;
      case OpCode::kCodesInputGradient:
        op.x.c = op.groups;
        break;
      default:
        // Each channel meets the same positions of its group's inputs.
        op.x.c = op.groups = 1;
    }
    return op;
  }
  // One sample, or channel, in place of those that only the left operand has.
  DspOp ForSumsOfRight() const {
    DspOp op = whole_;
    if (code_ == OpCode::kCodesWeightGradient) {
      op.y.c = op.groups = 1;
    } else {
      op.x.n = op.y.n = 1;
    }
    return op;
  }

  void CountOnes(int64_t elements) {
    sums_.ones_bytes = std::max(sums_.ones_bytes, kTailRoom + elements);
  }

  SumPlace AddOfLeft(const DspOp& op, uint32_t right) {
    SumPlace place;
    place.upper = Add(op, operands_.left, right);
    if (operands_.low != 0) place.lower = Add(op, operands_.low, right);
    return place;
  }

  // Gives the place of its result.
  uint32_t Add(DspOp op, uint32_t left, uint32_t right) {
    const OperandSizes sizes = SizesOf(code_, op);
    const auto operand = [&](uint32_t at, int64_t elements) {
      return DspTensor{.data = at,
                       .tail = operands_.ones,
                       .elements = static_cast<uint32_t>(elements),
                       .bytes = 1};
    };
    op.in[0] = operand(left, sizes.left);
    op.in[1] = operand(right, sizes.right);
    const uint32_t at = operands_.sums + static_cast<uint32_t>(sums_.sums_bytes);
    op.out[0] = {.data = at,
                 .tail = operands_.sums,
                 .elements = static_cast<uint32_t>(sizes.result),
                 .bytes = SumBytes(code_)};
    constexpr int64_t kVector = 128;
    const int64_t bytes = sizes.result * SumBytes(code_);
    sums_.sums_bytes += (bytes + kVector - 1) / kVector * kVector;
    sums_.ops.push_back(op);
    return at;
  }

  const OpCode code_;
  const DspOp whole_;
  const CodeOperands operands_;
  CodeSums sums_;
};

}  // namespace

CodeSums SumsOfCodes(OpCode code, bool is_linear, const host::Geometry& geometry,
                     const CodeOperands& operands) {
  DspOp op;
  op.code = DspProductOf(code, is_linear);
  EncodeSizes(geometry, &op);
  return SumMaker(code, op, operands).Make();
}

}  // namespace runnel::hexagon
