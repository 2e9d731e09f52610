#include "kernels/ir/passes/fuse_codes.h"

#include <utility>
#include <vector>

#include "kernels/ir/arithmetic/code_rule.h"

namespace runnel {
namespace {

bool IsProduct(const Instruction& instruction) {
  return instruction.code == OpCode::kInt8ConvForward ||
         instruction.code == OpCode::kInt8LinearForward;
}

class Fuser {
 public:
  explicit Fuser(Program& program)
      : program_(program),
        part_(program.parts[static_cast<int>(Part::kForwardEval)]),
        writer_(program.buffers.size(), kNobody),
        readers_(program.buffers.size(), 0),
        is_fused_(part_.size(), false) {
    for (size_t at = 0; at < part_.size(); ++at) {
      for (const BufferIndex input : part_[at].inputs) ++readers_[input];
      for (const BufferIndex output : part_[at].outputs) writer_[output] = at;
    }
  }

  void Run() {
    for (size_t at = 0; at < part_.size(); ++at) {
      if (part_[at].code == OpCode::kRequantizeCodes) FuseProduct(at);
      if (part_[at].code == OpCode::kAddCodes) FuseAddition(at);
    }
    std::vector<Instruction> left;
    for (size_t at = 0; at < part_.size(); ++at) {
      if (!is_fused_[at]) left.push_back(std::move(part_[at]));
    }
    part_ = std::move(left);
  }

 private:
  static constexpr size_t kNobody = ~size_t{0};

  // The instruction that writes a value which one other alone reads; else null.
  Instruction* OnlyFor(BufferIndex value) {
    const size_t writer = writer_[value];
    return readers_[value] == 1 && writer != kNobody ? &part_[writer] : nullptr;
  }
  // Its rule has a factor for each channel, not one for all.
  bool HasEachChannel(const Instruction& requantize) const {
    const int64_t channels = program_.buffers[requantize.outputs[0]].shape[1];
    return program_.buffers[requantize.inputs[1]].shape.elements() ==
           kCodeRuleWords + channels * kCodeChannelWords;
  }
  void Drop(const Instruction& instruction) { is_fused_[&instruction - part_.data()] = true; }

  void FuseProduct(size_t at) {
    Instruction& requantize = part_[at];
    const Instruction* product = OnlyFor(requantize.inputs[0]);
    if (product == nullptr || !IsProduct(*product) || !HasEachChannel(requantize)) return;
    BufferIndex x = product->inputs[0];
    const Instruction* rows = nullptr;
    if (requantize.inputs.size() > 2) {
      rows = OnlyFor(requantize.inputs[2]);
      if (rows == nullptr || !IsProduct(*rows) || rows->inputs[0] != x) return;
      Drop(*rows);
      --readers_[x];
    }
    requantize.attributes = product->attributes;
    requantize.winograd = product->winograd;
    const Instruction* pad = OnlyFor(x);
    if (pad != nullptr && pad->code == OpCode::kPadCodes) {
      const Shape& padded = program_.buffers[x].shape;
      x = pad->inputs[0];
      const Shape& inner = program_.buffers[x].shape;
      for (int axis = 0; axis < 2; ++axis)
        requantize.attributes.padding[axis] = (padded[2 + axis] - inner[2 + axis]) / 2;
      Drop(*pad);
    }
    Drop(*product);
    requantize.inputs = {x, product->inputs[1], requantize.inputs[1]};
    requantize.keeps.clear();
    requantize.code = OpCode::kInt8ProductToCodes;
  }

  // Computed with the product, whose place it takes: nothing else reads the code in between.
  void FuseAddition(size_t at) {
    Instruction& add = part_[at];
    Instruction* product = OnlyFor(add.inputs[0]);
    if (product == nullptr || product->code != OpCode::kInt8ProductToCodes ||
        product->inputs.size() > kAddedOperand) {
      return;
    }
    const size_t other = writer_[add.inputs[1]];
    if (other != kNobody && other >= static_cast<size_t>(product - part_.data())) return;
    product->inputs.insert(product->inputs.end(), {add.inputs[1], add.inputs[2]});
    product->outputs = add.outputs;
    writer_[add.outputs[0]] = product - part_.data();
    Drop(add);
  }

  Program& program_;
  std::vector<Instruction>& part_;
  std::vector<size_t> writer_;  // by buffer
  std::vector<int> readers_;    // by buffer
  std::vector<bool> is_fused_;  // by instruction: it is part of another one
};

}  // namespace

void FuseCodes(Program& program) { Fuser(program).Run(); }

}  // namespace runnel
