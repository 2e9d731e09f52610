#include "kernels/backends/cpu/fused_steps.h"

#include <algorithm>
#include <utility>

#include "kernels/backends/cpu/fp32/fp32_kernels.h"
#include "kernels/backends/cpu/fp32/packing.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/backends/cpu/integer/integer_kernels.h"
#include "kernels/backends/cpu/planned_part.h"
#include "kernels/ir/gate_options.h"

namespace runnel::cpu {
namespace {

bool IsActivation(OpCode code) { return TraitsOf(code).is_relu; }
bool IsActivationGradient(OpCode code) {
  return code == OpCode::kReluInputGradient || code == OpCode::kRelu6InputGradient;
}
bool IsActivationCodes(OpCode code) {
  return code == OpCode::kAffineActivationCodes || code == OpCode::kAffineActivationCodesEval;
}
bool IsFinished(OpCode code) {
  return code == OpCode::kConvForward || code == OpCode::kLinearForward;
}
bool IsNorm(OpCode code) {
  return code == OpCode::kBatchNormForward || code == OpCode::kBatchNormEval ||
         code == OpCode::kBatchNormAgain;
}

// Fuses one part of a program.
class Fuser : private PlannedPart {
 public:
  Fuser(const Program& program, const LayoutPlan& layout, Part part)
      : PlannedPart(program, layout, part),
        program_(program),
        gates_(GatesByChoice(program)),
        sums_done_(size()) {}

  std::vector<Step> Run() {
    for (size_t i = 0; i < size(); ++i) {
      if (StartsNormGradient(i) == 2) IgnoreY(i);
    }
    size_t i = 0;
    while (i < size()) {
      if (const size_t idle = StartsIdle(i); idle > 0) {
        i += idle;
        continue;
      }
      Step step;
      size_t taken = TakeByOption(i, &step);
      if (taken == 0) taken = TakeWeightStep(i, &step);
      if (taken == 0) taken = TakeSumCodes(i, &step);
      if (taken == 0) taken = TakeCodes(i, &step);
      if (taken == 0) taken = TakeBackward(i, &step);
      if (taken == 0) taken = TakeFinished(i, &step);
      if (taken == 0) taken = TakeForward(i, &step);
      if (taken == 0) taken = TakeAlone(i, &step);
      steps_.push_back(std::move(step));
      i += taken;
    }
    return std::move(steps_);
  }

 private:
  StepPart& Take(size_t i, Step* step) {
    step->parts.push_back({.planned = Planned(i), .sums_done = sums_done_[i]});
    return step->parts.back();
  }
  size_t TakeAlone(size_t i, Step* step) {
    *step = Step();
    Take(i, step);
    step->run = Planned(i).kernel->run;
    return 1;
  }

  // Runs once for each of several options, and so in no step with what runs once for all samples.
  bool IsByOption(size_t i) const {
    return i < size() && RunsByOption(At(i)) &&
           LevelsOf(*gates_[static_cast<size_t>(At(i).gate)]) > 1;
  }
  size_t TakeByOption(size_t i, Step* step) { return IsByOption(i) ? TakeAlone(i, step) : 0; }

  // The instructions of a normalisation from i on: 2 with the activation behind it, 1, or 0.
  size_t StartsNorm(size_t i) const {
    if (!IsNorm(Code(i)) || Turned(i)) return 0;
    const bool with = IsActivation(Code(i + 1)) && !Turned(i + 1) && In(i + 1, 0) == Out(i) &&
                      !WantedAfter(Out(i), i + 1, i + 1) && MeetAtElements(Out(i + 1), In(i, 0));
    return with ? 2 : 1;
  }
  // Likewise of one that is made again for nobody: for gradients of activations that find their
  // values themselves.
  size_t StartsIdle(size_t i) const {
    const size_t norm = Code(i) == OpCode::kBatchNormAgain ? StartsNorm(i) : 0;
    return norm > 0 && !WantedAfter(Out(i + norm - 1), i + norm, i + norm - 1) ? norm : 0;
  }
  // Likewise of the gradient of one, where the activation's gradient comes first. Its values are
  // found anew from the normalisation's input, for which the shift is needed.
  size_t StartsNormGradient(size_t i) const {
    if (Code(i) == OpCode::kBatchNormInputGradient) return Turned(i) ? 0 : 1;
    if (!IsActivationGradient(Code(i)) || Code(i + 1) != OpCode::kBatchNormInputGradient) return 0;
    if (Turned(i) || Turned(i + 1) || In(i + 1, 0) != Out(i) || ShiftOf(i + 1) < 0) return 0;
    // The activation's gradient is read twice, before and while the normalisation's is written.
    if (Overwrites(i + 1, In(i, 0))) return 0;
    // What stands between the activation and the normalisation is nothing but their value.
    return ActivationReads(i, i + 1) ? 2 : 0;
  }

  // The forward of this activation reads what the forward of this normalisation gives.
  bool ActivationReads(size_t activation, size_t norm) const {
    const Instruction* forward_norm = ForwardNorm(norm);
    for (const Instruction& instruction : program_.part(Part::kForward)) {
      if (IsActivation(instruction.code) && instruction.layer == At(activation).layer &&
          instruction.op == At(activation).op) {
        return instruction.inputs[0] == forward_norm->outputs[0];
      }
    }
    return false;
  }
  const Instruction* ForwardNorm(size_t gradient) const {
    const Instruction& of = At(gradient);
    for (const Instruction& instruction : program_.part(Part::kForward)) {
      if (instruction.code == OpCode::kBatchNormForward && instruction.layer == of.layer &&
          instruction.op == of.op) {
        return &instruction;
      }
    }
    return nullptr;
  }
  BufferIndex ShiftOf(size_t gradient) const {
    const Instruction* norm = ForwardNorm(gradient);
    return norm == nullptr ? -1 : norm->inputs[2];
  }
  StepPart& TakeNormGradient(size_t i, Step* step) {
    StepPart& part = Take(i, step);
    if (const BufferIndex shift = ShiftOf(i); shift >= 0) part.extra_inputs.push_back(shift);
    return part;
  }

  // A normalisation, its sum with another value, activation, codes. The normalised values are made
  // where the activation's go, so the other value must not lie there.
  size_t TakeSumCodes(size_t i, Step* step) {
    const size_t sum = i + 1, activation = i + 2, codes = i + 3;
    if (StartsNorm(i) != 1 || Code(sum) != OpCode::kAddForward || !IsActivation(Code(activation)) ||
        !IsActivationCodes(Code(codes)))
      return 0;
    if (IsByOption(codes) || Turned(sum) || Turned(activation) || Turned(codes)) return 0;
    const bool is_first = In(sum, 0) == Out(i), is_second = In(sum, 1) == Out(i);
    if (is_first == is_second || In(activation, 0) != Out(sum) || In(codes, 0) != Out(activation))
      return 0;
    if (WantedAfter(Out(i), sum, codes) || WantedAfter(Out(sum), activation, codes) ||
        !MeetAtElements(Out(activation), In(i, 0)) ||
        Overlap(Out(activation), In(sum, is_first ? 1 : 0)))
      return 0;
    for (size_t k = i; k <= codes; ++k) Take(k, step);
    step->run = CodesOfSum;
    return codes + 1 - i;
  }

  // A normalisation or its gradient, and the codes of what it makes.
  size_t TakeCodes(size_t i, Step* step) {
    const size_t forward = StartsNorm(i), gradient = StartsNormGradient(i);
    const size_t codes = i + std::max(forward, gradient);
    const bool fits =
        forward > 0 ? IsActivationCodes(Code(codes)) : Code(codes) == OpCode::kAffineErrorCodes;
    if (codes == i || !fits || IsByOption(codes) || Turned(codes) || In(codes, 0) != Out(codes - 1))
      return 0;
    for (size_t k = i; k < codes; ++k)
      Code(k) == OpCode::kBatchNormInputGradient ? TakeNormGradient(k, step) : Take(k, step);
    // What is read block by block must not lie where codes are written.
    const bool overwrites =
        Overwrites(codes, In(i, 0)) || (gradient > 0 && Overwrites(codes, In(codes - 1, 1)));
    step->parts.back().keep_output = overwrites || WantedAfter(Out(codes - 1), codes, codes);
    Take(codes, step);
    step->run = forward > 0 ? CodesOfNorm : CodesOfNormGradient;
    return codes + 1 - i;
  }

  // Evaluation: a product of floats, then [normalisation], [activation], [sum with another value],
  // [activation], which its sums go through while they lie in registers.
  size_t TakeFinished(size_t i, Step* step) {
    if (part() != Part::kForwardEval || !IsFinished(Code(i))) return 0;
    size_t end = i + 1;
    if (Code(end) == OpCode::kBatchNormEval && GoesOn(end)) ++end;
    if (IsActivation(Code(end)) && GoesOn(end)) ++end;
    if (Code(end) == OpCode::kAddForward && GoesOn(end)) ++end;
    if (Code(end - 1) == OpCode::kAddForward && IsActivation(Code(end)) && GoesOn(end)) ++end;
    if (IsActivationCodes(Code(end)) && In(end, 0) == Out(end - 1)) return 0;
    while (end > i + 1 && !FitsPlaces(i, end)) --end;
    if (end == i + 1) return 0;
    for (size_t k = i; k < end; ++k) Take(k, step);
    step->run = fp32::FinishedProduct;
    return end - i;
  }

  // Whether instruction i alone reads what the one before it gives, once, as it lies there.
  bool GoesOn(size_t i) const {
    const BufferIndex value = Out(i - 1);
    const std::vector<BufferIndex>& inputs = At(i).inputs;
    const auto is_turned = [](const Turn& turn) { return turn.way != Turn::Way::kNone; };
    const auto reads = [&](BufferIndex input) { return Overlap(input, value); };
    const std::vector<Turn>&before = Planned(i - 1).outputs, &own = Planned(i).inputs;
    const bool is_there =
        inputs[0] == value || (Code(i) == OpCode::kAddForward && inputs[1] == value);
    return is_there && std::count_if(inputs.begin(), inputs.end(), reads) == 1 &&
           At(i).gate == At(i - 1).gate && std::none_of(before.begin(), before.end(), is_turned) &&
           std::none_of(own.begin(), own.end(), is_turned) && !WantedAfter(value, i, i);
  }

  // What the product reads is not overwritten by what [i, end) gives, and what is added only element
  // by element.
  bool FitsPlaces(size_t i, size_t end) const {
    const BufferIndex result = Out(end - 1);
    const bool is_copied = Planned(i).inputs[0].way != Turn::Way::kNone;
    if (!is_copied && Overlap(result, In(i, 0))) return false;
    for (size_t k = i + 1; k < end; ++k) {
      for (const BufferIndex input : At(k).inputs) {
        if (!MeetAtElements(result, input)) return false;
      }
    }
    return true;
  }

  // [normalisation], convolution, [statistics]; or a normalisation alone.
  size_t TakeForward(size_t i, Step* step) {
    const size_t norm = StartsNorm(i);
    const size_t conv = i + norm;
    const bool joins = Code(conv) == OpCode::kConvForward && !IsByOption(conv) &&
                       (norm == 0 || Planned(conv).inputs[0].way == Turn::Way::kNone) &&
                       (norm == 0 || (In(conv, 0) == Out(conv - 1) && !Overwrites(conv, In(i, 0)) &&
                                      !IsMadeInPlace(i, conv)));
    if (norm == 0 && !joins) return 0;
    for (size_t k = i; k < conv; ++k) Take(k, step);
    if (!joins) {
      step->run = fp32::BatchNormForward;
      return norm;
    }
    if (norm > 0) step->parts.back().keep_output = WantedAfter(Out(conv - 1), conv, conv);
    Take(conv, step);
    step->run = fp32::ConvForward;
    const size_t next = conv + 1;
    if (Code(next) == OpCode::kBatchNormForward && !Turned(conv) && !Turned(next) &&
        In(next, 0) == Out(conv)) {
      Take(next, step);
      sums_done_[next] = true;
    }
    return norm + 1;
  }

  // A normalisation's output that is kept where its input lay, so that it cannot be made twice.
  bool IsMadeInPlace(size_t norm, size_t conv) const {
    return Overlap(Out(conv - 1), In(norm, 0)) && WantedAfter(Out(conv - 1), conv, conv);
  }

  // [gradient of a normalisation], [normalisation that makes x], convolution's gradients, [sums of
  // the next gradient of a normalisation].
  size_t TakeBackward(size_t i, Step* step) {
    const size_t gradient = StartsNormGradient(i);
    size_t at = i + gradient;
    const size_t again = Code(at) == OpCode::kBatchNormAgain ? StartsNorm(at) : 0;
    const size_t weight = at + again;
    const bool has_weight = Code(weight) == OpCode::kConvWeightGradient && !IsByOption(weight) &&
                            InPlace(weight, gradient > 0, again > 0) &&
                            !OverwritesSources(i, gradient, at, again, weight) &&
                            (again == 0 || In(weight, 1) == Out(weight - 1)) &&
                            (gradient == 0 || In(weight, 0) == Out(i + gradient - 1));
    if (again > 0 && !has_weight) return TakeNormGradients(i, gradient, step);
    const size_t input = has_weight ? weight + 1 : at;
    bool has_input = Code(input) == OpCode::kConvInputGradient && !IsByOption(input) &&
                     (gradient == 0 || Planned(input).inputs[0].way == Turn::Way::kNone);
    if (has_input && has_weight) has_input = In(input, 0) == In(weight, 0) && IsSmall(input);
    if (has_input && gradient > 0) has_input = In(input, 0) == Out(i + gradient - 1);
    if (has_input) has_input = !OverwritesSources(i, gradient, at, again, input);
    if (has_input && has_weight) has_input = SparesOperands(weight, input);
    if (!has_weight && !has_input) return TakeNormGradients(i, gradient, step);
    const size_t end = has_input ? input + 1 : weight + 1;
    if (gradient > 0 && again > 0 && WantedAfter(Out(weight - 1), weight, end - 1) &&
        OverwritesSources(i, gradient, at, 0, weight - 1))
      return TakeNormGradients(i, gradient, step);
    for (size_t k = i; k < end; ++k) {
      StepPart& part =
          Code(k) == OpCode::kBatchNormInputGradient ? TakeNormGradient(k, step) : Take(k, step);
      if (k == at - 1 && gradient > 0) {
        const bool bias = has_weight && At(weight).outputs.size() > 1;
        part.keep_output = bias || WantedAfter(Out(k), at, end - 1);
      }
      if (k == weight - 1 && again > 0) part.keep_output = WantedAfter(Out(k), weight, end - 1);
    }
    step->run = fp32::ConvBackward;
    if (has_input) TakeNextSums(end, weight, has_weight, step);
    return end - i;
  }

  // A weight-gradient of integers and the update that alone reads it.
  size_t TakeWeightStep(size_t i, Step* step) {
    if (!TraitsOf(Code(i)).is_integer_weight_gradient() || Code(i + 1) != OpCode::kNitiUpdate ||
        In(i + 1, 1) != Out(i) || Turned(i + 1) || WantedAfter(Out(i), i + 1, i + 1)) {
      return 0;
    }
    Take(i, step);
    Take(i + 1, step);
    step->run = RunWeightStep;
    return 2;
  }

  // Operands of a weight-gradient that the step makes are not to be turned.
  bool InPlace(size_t weight, bool makes_dy, bool makes_x) const {
    const std::vector<Turn>& turns = Planned(weight).inputs;
    return !(makes_dy && turns[0].way != Turn::Way::kNone) &&
           !(makes_x && turns[1].way != Turn::Way::kNone);
  }

  // What the step reads block by block lies where this gradient is written.
  bool OverwritesSources(size_t i, size_t gradient, size_t at, size_t again, size_t writer) const {
    if (gradient > 0 && (Overwrites(writer, In(i, 0)) || Overwrites(writer, In(at - 1, 1)))) {
      return true;
    }
    return again > 0 && Overwrites(writer, In(at, 0));
  }

  // Both gradients take turns, some images at a time: the input-gradient must not lie over what the
  // weight-gradient has yet to read. Over x it may lie image by image.
  bool SparesOperands(size_t weight, size_t input) const {
    const std::vector<Turn>& turns = Planned(weight).inputs;
    const bool copies_dy = turns[0].way != Turn::Way::kNone;
    const bool copies_x = turns[1].way != Turn::Way::kNone;
    return (copies_dy || !Overlap(Out(input), In(weight, 0))) &&
           (copies_x || MeetAtElements(Out(input), In(weight, 1)));
  }

  // Both gradients of a convolution together need its weight twice, packed and as sums: too much
  // where that is more than what they share.
  bool IsSmall(size_t input) const {
    return program_.buffers[In(input, 1)].bytes() <= fp32::kMaxPackedBytes;
  }

  size_t TakeNormGradients(size_t i, size_t count, Step* step) {
    for (size_t k = i; k < i + count; ++k) {
      Code(k) == OpCode::kBatchNormInputGradient ? TakeNormGradient(k, step) : Take(k, step);
    }
    step->run = fp32::BatchNormInputGradient;
    return count;
  }

  void TakeNextSums(size_t next, size_t weight, bool has_weight, Step* step) {
    const size_t own = next - 1;
    while (TraitsOf(Code(next)).part == Part::kUpdate)
      ++next;  // of the convolution: in nobody's way
    const size_t gradient = StartsNormGradient(next);
    if (gradient == 0 || Turned(own) || In(next, 0) != Out(own)) return;
    if (has_weight && At(weight).outputs.size() > 1) return;
    // The sums are written before the updates that they come behind.
    const BufferIndex sums = At(next + gradient - 1).outputs[1];
    for (size_t update = own + 1; update < next; ++update) {
      if (Overlap(sums, In(update, 1))) return;
    }
    if (gradient == 2) Take(next, step);
    TakeNormGradient(next + gradient - 1, step);
    sums_done_[next + gradient - 1] = true;
  }

  const Program& program_;
  const std::vector<const OpSpec*> gates_;  // GatesByChoice
  std::vector<bool> sums_done_;             // by instruction
  std::vector<Step> steps_;
};

}  // namespace

StepPlan PlainSteps(const LayoutPlan& layout) {
  StepPlan plan;
  for (int part = 0; part < kPartCount; ++part) {
    for (const PlannedInstruction& planned : layout.parts[part]) {
      plan[part].push_back({{{.planned = planned}}, planned.kernel->run});
    }
  }
  return plan;
}

StepPlan FuseSteps(const Program& program, const LayoutPlan& layout) {
  StepPlan plan;
  for (int part = 0; part < kPartCount; ++part) {
    plan[part] = Fuser(program, layout, static_cast<Part>(part)).Run();
  }
  return plan;
}

}  // namespace runnel::cpu
