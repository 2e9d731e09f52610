// Cases of fixed points, and of what compensates for grids.

#include <cstring>

#include "proto/base/model/width_state.h"
#include "tests/conformance/case_maker.h"

namespace runnel {

// A state that was measured, or not yet, or is not there; it is kept, or read.
void Maker::Widths() {
  const Shape shape = AnyShape();
  In(Floats(Storage::kScratch, shape));
  CaseOperand widths = Floats(Storage::kStatistics, {kWidthWords});
  WidthState state;
  state.bits = static_cast<float>(8 * Pick(0, 3));
  state.exponent = static_cast<float>(Pick(0, 6) - 12);
  state.moving = static_cast<float>(Pick(0, 60)) / 10 - 10;
  state.wait = static_cast<float>(Pick(0, 1));
  state.measured = static_cast<float>(Pick(0, 20));
  std::memcpy(widths.bytes.data(), &state, sizeof(state));
  const int64_t use = Pick(0, 3);
  if (use == 1) In(widths);
  Out(Result(Storage::kScratch, shape, {}));
  if (use < 2) return;
  widths.written = true;
  Out(std::move(widths));
}

// Behind a convolution, and its gradient.
void Maker::Compensations() {
  const Shape x = Pick(0, 1) == 0 ? Shape{Pick(1, 6), Pick(1, 9), Pick(1, 20)}
                                  : Shape{Pick(1, 6), Pick(1, 9), Pick(1, 7), Pick(1, 7)};
  const Shape sample = {x.elements() / x[0]};
  In(Floats(Storage::kScratch, x));
  for (int i = 0; i < 3; ++i) In(Floats(Storage::kParameters, sample));
  if (case_.code == OpCode::kCompensate) return Out(Result(Storage::kScratch, x, {}));
  for (int i = 0; i < 3; ++i) Out(Result(Storage::kGradients, sample, {}));
}

void Maker::FixedUpdate() {
  Update();
  case_.grid.bits = Pick(0, 3) == 0 ? 32 : 24;
  case_.grid.draws = static_cast<int>(Pick(0, 2));
  for (CaseOperand& operand : case_.inputs) operand.bound = {};
  case_.outputs[0].bound = {};
}

bool Maker::MakeOfFixedPoints() {
  case_.grid.bits = 8 << Pick(0, 1);
  switch (case_.code) {
    case OpCode::kAdaptWidth:
      Widths();
      return true;
    case OpCode::kCompensate:
    case OpCode::kCompensationGradient:
      Compensations();
      return true;
    case OpCode::kFixedPoint:
      case_.grid.is_open = Pick(0, 1) == 0;
      [[fallthrough]];
    case OpCode::kShiftError:
    case OpCode::kFlagError:
    case OpCode::kShiftedReluInputGradient: {
      const Shape shape = AnyShape();
      In(Floats(Storage::kScratch, shape));
      if (case_.code == OpCode::kShiftedReluInputGradient) In(Floats(Storage::kScratch, shape));
      Out(Result(Storage::kScratch, shape, {}));
      return true;
    }
    case OpCode::kFixedNormForward:
    case OpCode::kFixedNormEval:
    case OpCode::kFixedNormInputGradient:
      case_.part() == Part::kInputGradient ? BatchNormGradient() : BatchNorm();
      for (CaseOperand& operand : case_.outputs) operand.bound = {};
      return true;
    case OpCode::kFixedUpdate:
      FixedUpdate();
      return true;
    default:
      case_.grid.bits = 32;
      return false;
  }
}

}  // namespace runnel
