// Cases of gates, and of what stands where branches of a network meet.

#include "tests/conformance/case_maker.h"

namespace runnel {

// The factor is a channel's, or has x's shape.
void Maker::Product() {
  const Shape x = AnyShape();
  const Shape factor = Pick(0, 1) == 0 ? x : Shape{x[0], x[1]};
  if (case_.code == OpCode::kMultiply) {
    In(Floats(Storage::kInput, x));
    In(Floats(Storage::kInput, factor));
    return Out(Result(Storage::kOutput, x, {}));
  }
  In(Floats(Storage::kOutputGradient, x));
  In(Floats(Storage::kInput, x));
  const auto terms = static_cast<double>(x.elements() / factor.elements());
  Out(Result(Storage::kInputGradient, factor, Sum(terms)));
}

void Maker::ChannelParts(bool joins) {
  const Shape a = AnyShape();
  std::vector<int64_t> dims(a.dims().begin(), a.dims().end());
  dims[1] = Channels();
  const Shape b = *Shape::Create(dims);
  dims[1] += a[1];
  const Shape both = *Shape::Create(dims);
  if (joins) {
    In(Floats(Storage::kInput, a));
    In(Floats(Storage::kInput, b));
    return Out(Result(Storage::kOutput, both, {}));
  }
  In(Floats(Storage::kOutputGradient, both));
  Out(Result(Storage::kInputGradient, case_.code == OpCode::kFirstChannels ? a : b, {}));
}

bool Maker::MakeOfBranches() {
  switch (case_.code) {
    case OpCode::kSigmoidForward:
    case OpCode::kHardSigmoidForward:
    case OpCode::kSigmoidInputGradient:
    case OpCode::kHardSigmoidInputGradient:
      Elementwise(TraitsOf(case_.code).min_inputs);
      return true;
    case OpCode::kLeakyReluForward:
    case OpCode::kLeakyReluInputGradient:
      case_.attributes.rate = 0.1 * static_cast<double>(Pick(0, 5));
      Elementwise(TraitsOf(case_.code).min_inputs);
      return true;
    case OpCode::kMultiply:
    case OpCode::kFactorGradient:
      Product();
      return true;
    case OpCode::kConcatForward:
    case OpCode::kFirstChannels:
    case OpCode::kLastChannels:
      ChannelParts(/*joins=*/case_.code == OpCode::kConcatForward);
      return true;
    default:
      return false;
  }
}

}  // namespace runnel
