#pragma once

// What fused steps ask about a part of a program: where its values lie, and who reads them.

#include <cstddef>
#include <vector>

#include "kernels/backends/cpu/layout_plan.h"
#include "kernels/ir/program.h"

namespace runnel::cpu {

class PlannedPart {
 public:
  // Both are borrowed.
  PlannedPart(const Program& program, const LayoutPlan& layout, Part part)
      : program_(program),
        part_(part),
        planned_(layout.parts[static_cast<int>(part)]),
        ignores_y_(planned_.size()) {}

  Part part() const { return part_; }
  size_t size() const { return planned_.size(); }
  const PlannedInstruction& Planned(size_t i) const { return planned_[i]; }
  const Instruction& At(size_t i) const { return *planned_[i].instruction; }
  // kCopy behind the last one.
  OpCode Code(size_t i) const { return i < size() ? At(i).code : OpCode::kCopy; }
  BufferIndex In(size_t i, size_t operand) const { return At(i).inputs[operand]; }
  BufferIndex Out(size_t i) const { return At(i).outputs[0]; }
  bool Turned(size_t i) const { return planned_[i].turns(); }

  // An activation's gradient whose second operand nobody reads.
  void IgnoreY(size_t i) { ignores_y_[i] = true; }

  bool Overlap(BufferIndex a, BufferIndex b) const;
  bool Covers(BufferIndex outer, BufferIndex inner) const;
  // Either apart, or each element of one where that of the other is.
  bool MeetAtElements(BufferIndex a, BufferIndex b) const;
  // Whether one of the step's outputs lies over a buffer that the step reads late.
  bool Overwrites(size_t i, BufferIndex late) const;
  // Whether anybody reads `value` after instructions [.., last] of this part; those from `since` on
  // have read it already.
  bool WantedAfter(BufferIndex value, size_t since, size_t last) const;

 private:
  bool WantedInLaterParts(BufferIndex value) const;

  const Program& program_;
  const Part part_;
  const std::vector<PlannedInstruction>& planned_;
  std::vector<bool> ignores_y_;
};

}  // namespace runnel::cpu
