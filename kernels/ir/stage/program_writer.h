#pragma once

// Buffers and instructions of a program in the making, in the order in which they are asked for.
// Used by StageBuilder and its parts only. One thread.

#include <vector>

#include "kernels/ir/program.h"
#include "kernels/ir/recipe.h"
#include "kernels/ir/stage/op_nodes.h"

namespace runnel {

// The recipe, the program and `placed` (StageDraft::placed) outlive it.
class ProgramWriter {
 public:
  ProgramWriter(const Recipe& recipe, Program& program, std::vector<bool>& placed)
      : recipe_(recipe), program_(program), placed_(placed) {}

  const Recipe& recipe() const { return recipe_; }
  Program& program() const { return program_; }
  const Buffer& buffer(BufferIndex index) const { return program_.buffers[index]; }
  // Of a part that has one.
  Instruction& last(Part part) const { return program_.parts[static_cast<int>(part)].back(); }

  // A buffer whose storage and offset are known.
  BufferIndex AddPlaced(Storage storage, DType dtype, const Shape& shape, int64_t offset = 0,
                        bool scaled = false);
  // A tensor at an end of the stage.
  BufferIndex AddBoundary(Storage storage, const Shape& shape);
  BufferIndex AddValue(DType dtype, const Shape& shape, bool scaled = false);
  // packed_by: the choice by which its samples lie packed.
  BufferIndex AddActivation(const Shape& shape, BufferIndex packed_by = kNoGate);
  BufferIndex AddGradientOf(BufferIndex value);

  void Emit(Part part, OpCode code, const OpNode& node, std::vector<BufferIndex> inputs,
            std::vector<BufferIndex> outputs);
  // At an end of the stage.
  void EmitCopy(Part part, OpNode node, BufferIndex from, BufferIndex to);
  // With the accumulator and its rescaling in between if `rescale`.
  void EmitRescaled(Part part, OpCode code, bool rescale, const OpNode& node,
                    std::vector<BufferIndex> inputs, std::vector<BufferIndex> outputs);

 private:
  BufferIndex Add(const Buffer& buffer, bool placed);

  const Recipe& recipe_;
  Program& program_;
  std::vector<bool>& placed_;
};

}  // namespace runnel
