// Cases of gates, and of what stands where branches of a network meet.

#include "kernels/ir/arithmetic/sample_choice.h"
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

// x, and channels of it; the gradient is as large as x.
void Maker::Slice() {
  const Shape x = AnyShape();
  OpSpec& op = case_.attributes;
  op.kind = OpKind::kSlice;
  op.begin = Pick(0, x[1] - 1);
  op.out_channels = Pick(1, x[1] - op.begin);
  std::vector<int64_t> dims(x.dims().begin(), x.dims().end());
  dims[1] = op.out_channels;
  const Shape part = *Shape::Create(dims);
  const bool forward = case_.code == OpCode::kSliceForward;
  In(Floats(forward ? Storage::kInput : Storage::kOutputGradient, forward ? x : part));
  Out(Result(forward ? Storage::kOutput : Storage::kInputGradient, forward ? part : x, {}));
}

void Maker::Shuffle() {
  const Shape x = AnyShape();
  OpSpec& op = case_.attributes;
  op.kind = OpKind::kShuffle;
  op.groups = Pick(1, x[1]);
  while (x[1] % op.groups != 0) --op.groups;
  const bool forward = case_.code == OpCode::kShuffleForward;
  In(Floats(forward ? Storage::kInput : Storage::kOutputGradient, x));
  Out(Result(forward ? Storage::kOutput : Storage::kInputGradient, x, {}));
}

// By a choice with probabilities, and an exploration of the same options, each by a weight.
void Maker::SamplesThatLearn(const Shape& x) {
  const OpSpec& op = case_.attributes;
  const int64_t columns = ColumnsOf(op);
  CaseOperand logits = Floats(Storage::kInput, {x[0], OptionCount(op)});
  CaseOperand choice = Floats(Storage::kInput, {x[0], columns}), exploration = choice;
  if (case_.code == OpCode::kChooseSamples) {
    In(std::move(logits));
    Out(Result(Storage::kOutput, choice.shape, {}));
    return Out(Result(Storage::kOutput, choice.shape, {}));
  }
  float* values = reinterpret_cast<float*>(choice.bytes.data());
  for (int64_t i = 0; i < x[0]; ++i)
    values[i * columns] = static_cast<float>(Pick(0, OptionCount(op) - 1));
  OrderSamples(op, x[0], columns, values);
  exploration.bytes = choice.bytes;
  if (case_.code == OpCode::kChoiceGradient) {
    In(Floats(Storage::kOutputGradient, choice.shape));
    In(std::move(choice));
    return Out(Result(Storage::kInputGradient, logits.shape, {}));
  }
  In(Floats(Storage::kOutputGradient, x));
  In(Floats(Storage::kInput, x));
  const Shape shape = choice.shape;
  In(std::move(choice));
  In(Floats(Storage::kInput, x));
  In(std::move(exploration));
  // Sums in double: what differs is how they are rounded.
  const auto terms = static_cast<double>(x.elements() / x[0]);
  Out(Result(Storage::kInputGradient, shape, {BoundKind::kAbsolute, 4, terms + 4}));
}

// By a choice that has drawn each option; what gathers lets no sample skip, so that all is written.
void Maker::Samples() {
  const Shape x = AnyShape();
  OpSpec& op = case_.attributes;
  op.kind = OpKind::kGate;
  op.options = {0, 6, 3, 6, 32, 32};
  op.rate = case_.code == OpCode::kGatherSamples ? 0 : 0.4;
  if (case_.code == OpCode::kChooseSamples || case_.code == OpCode::kMaskGradient ||
      case_.code == OpCode::kChoiceGradient)
    return SamplesThatLearn(x);
  CaseOperand choice = Floats(Storage::kInput, {x[0], kHeldColumns});
  if (case_.code == OpCode::kHoldSamples || case_.code == OpCode::kAllSamples) {
    In(Floats(Storage::kInput, x));
    return Out(Result(Storage::kOutput, choice.shape, {}));
  }
  float* values = reinterpret_cast<float*>(choice.bytes.data());
  const CounterRandom draws = GateDraws(seed_, 0, Sequence(0));
  for (int64_t i = 0; i < x[0]; ++i)
    values[i * kHeldColumns] = static_cast<float>(HeldOption(op, draws, i));
  OrderSamples(op, x[0], kHeldColumns, values);
  In(Floats(Storage::kInput, x));
  In(std::move(choice));
  if (case_.code == OpCode::kScatterSamples && Pick(0, 1) == 1) In(Floats(Storage::kInput, x));
  Out(Result(Storage::kOutput, x, {}));
}

// The same bytes on every backend. A cell without a state begins at zeros.
void Maker::LstmCell() {
  const int64_t samples = AnyShape()[0], units = Pick(1, 19);
  const Shape sums = {samples, 4 * units}, state = {samples, 2 * units};
  const bool forward = case_.code == OpCode::kLstmForward;
  if (!forward) In(Floats(Storage::kOutputGradient, state));
  In(Floats(Storage::kInput, sums));
  const bool of_state = case_.code == OpCode::kLstmStateGradient;
  if (of_state || Pick(0, 1) == 1) In(Floats(Storage::kInput, state));
  Out(Result(forward ? Storage::kOutput : Storage::kInputGradient,
             forward || of_state ? state : sums, {}));
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
    case OpCode::kSliceForward:
    case OpCode::kSliceInputGradient:
      Slice();
      return true;
    case OpCode::kShuffleForward:
    case OpCode::kShuffleInputGradient:
      Shuffle();
      return true;
    case OpCode::kHoldSamples:
    case OpCode::kAllSamples:
    case OpCode::kGatherSamples:
    case OpCode::kScatterSamples:
    case OpCode::kChooseSamples:
    case OpCode::kMaskGradient:
    case OpCode::kChoiceGradient:
      Samples();
      return true;
    case OpCode::kLstmForward:
    case OpCode::kLstmInputGradient:
    case OpCode::kLstmStateGradient:
      LstmCell();
      return true;
    default:
      return false;
  }
}

}  // namespace runnel
