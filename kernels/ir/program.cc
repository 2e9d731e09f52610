#include "kernels/ir/program.h"

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

constexpr const char* kStorageNames[kStorageCount] = {
    "input",      "output",    "output_gradient", "input_gradient", "labels", "metrics", "params",
    "new_params", "gradients", "slots",           "statistics",     "stash",  "scratch",
};

constexpr const char* kPartNames[kPartCount] = {"forward", "forward_eval", "input_gradient",
                                                "weight_gradient", "update"};

void AppendOperands(const Program& program, const std::vector<BufferIndex>& operands,
                    std::string* text) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const Buffer& buffer = program.buffers[operands[i]];
    absl::StrAppend(text, i == 0 ? " " : ", ", Name(buffer.storage), "+", buffer.offset_bytes, ":",
                    Name(buffer.dtype), buffer.is_rounded() ? "~" : "", ":",
                    buffer.shape.ToString());
  }
}

}  // namespace

absl::string_view Name(Storage storage) { return kStorageNames[static_cast<int>(storage)]; }

const Shape& ShapeOf(const Program& program, const Instruction& instruction, Operand operand) {
  const BufferIndex index = operand == Operand::kOutput0  ? instruction.outputs[0]
                            : operand == Operand::kInput1 ? instruction.inputs[1]
                                                          : instruction.inputs[0];
  return program.buffers[static_cast<size_t>(index)].shape;
}

// Each element of y is a sum over one output channel's weights, whichever of y, x and the weights
// is computed. Weights on a grid are flat: the channels are y's.
int64_t MultiplyAdds(const Program& program, const Instruction& instruction) {
  const OperandShapes& shapes = TraitsOf(instruction.code).shapes;
  if (shapes.weight == Operand::kNone) return 0;
  const Shape& weight = ShapeOf(program, instruction, shapes.weight);
  const Shape& y = ShapeOf(program, instruction, shapes.y);
  return y.elements() * (weight.elements() / y[1]);
}

bool HasGates(const Program& program) {
  for (const std::vector<Instruction>& part : program.parts) {
    for (const Instruction& instruction : part) {
      if (instruction.gate != kNoGate) return true;
    }
  }
  return false;
}

std::string ToString(const Program& program) {
  std::string text = absl::StrCat("layers ", program.first_layer, "..", program.last_layer,
                                  ", batch ", program.batch, "\n");
  for (int part = 0; part < kPartCount; ++part) {
    absl::StrAppend(&text, kPartNames[part], ":\n");
    for (const Instruction& instruction : program.parts[part]) {
      absl::StrAppend(&text, "  ", instruction.layer, ".", instruction.op, " ",
                      Name(instruction.code));
      AppendOperands(program, instruction.inputs, &text);
      absl::StrAppend(&text, " ->");
      AppendOperands(program, instruction.outputs, &text);
      const BatchSplit& split = instruction.split;
      if (split.SliceOf(program.batch) < program.batch)
        absl::StrAppend(&text, split.shifted ? ", shifted slices of " : ", slices of ",
                        split.samples);
      absl::StrAppend(&text, "\n");
    }
  }
  absl::StrAppend(&text, "parameters ", program.state.parameter_bytes, " B, statistics ",
                  program.state.statistic_bytes, " B, stash ", program.stash_bytes, " B, scratch ",
                  program.scratch_bytes, " B\n");
  return text;
}

}  // namespace runnel
