#include "kernels/ir/passes/rounded_storage.h"

#include <map>
#include <numeric>
#include <vector>

namespace runnel {
namespace {

class RoundedStorage {
 public:
  RoundedStorage(const Recipe& recipe, DType type, StageDraft& draft)
      : recipe_(recipe),
        type_(type),
        draft_(draft),
        program_(draft.program),
        source_(program_.buffers.size()),
        classes_(program_.buffers.size()) {
    std::iota(source_.begin(), source_.end(), 0);
  }

  void Run() {
    FindCopies();
    FindRounded();
    for (BufferIndex b = 0; b < static_cast<BufferIndex>(source_.size()); ++b) Store(b);
    for (const Instruction& instruction : Forward()) NarrowReluInput(instruction);
  }

 private:
  // A value and its copies, kept at the value.
  struct Class {
    bool is_rounded = false;  // by its layer
    bool enters = false;      // as a boundary tensor
    bool leaves = false;
    int readers = 0;  // in the forward, copies not counted
  };

  std::vector<Instruction>& Forward() { return program_.parts[static_cast<int>(Part::kForward)]; }
  Class& ClassOf(BufferIndex b) { return classes_[source_[b]]; }

  // What the instruction makes of the model's operator; null: it is none of the forward's values.
  const OpRule* RuleOf(const Instruction& instruction) const {
    const OpRule* rule = recipe_.Find(instruction.attributes.kind);
    return rule != nullptr && rule->forward == instruction.code ? rule : nullptr;
  }

  // Copies come behind what they copy.
  void FindCopies() {
    for (const Instruction& instruction : Forward()) {
      if (instruction.code == OpCode::kCopy) {
        source_[instruction.outputs[0]] = source_[instruction.inputs[0]];
      } else {
        for (BufferIndex input : instruction.inputs) ++ClassOf(input).readers;
      }
    }
    for (BufferIndex b = 0; b < static_cast<BufferIndex>(source_.size()); ++b) {
      const Storage storage = program_.buffers[b].storage;
      if (!draft_.placed[b]) continue;
      ClassOf(b).enters |= storage == Storage::kInput;
      ClassOf(b).leaves |= storage == Storage::kOutput;
    }
  }

  void FindRounded() {
    std::map<int, BufferIndex> layer_outputs;
    for (const Instruction& instruction : Forward()) {
      const OpRule* rule = RuleOf(instruction);
      if (rule == nullptr) continue;
      layer_outputs[instruction.layer] = instruction.outputs[0];
      const bool saves_both = rule->saved == Saved::kInputOutputAndSums;
      const bool saves_input = rule->weight_gradient.has_value() || rule->saved == Saved::kInput ||
                               rule->saved == Saved::kInputAndStats || saves_both;
      if (saves_input) ClassOf(instruction.inputs[0]).is_rounded = true;
      if (rule->saved == Saved::kOtherInput || rule->saved == Saved::kAllInputs) {
        for (BufferIndex input : instruction.inputs) ClassOf(input).is_rounded = true;
      }
      if (rule->saved == Saved::kOutput || saves_both)
        ClassOf(instruction.outputs[0]).is_rounded = true;
    }
    if (program_.has_loss) layer_outputs.erase(program_.last_layer);
    for (const auto& [layer, output] : layer_outputs) ClassOf(output).is_rounded = true;
  }

  // The raw samples are not rounded, nor are their copies.
  void Store(BufferIndex b) {
    const Class& values = ClassOf(b);
    if (!values.is_rounded || values.enters) return;
    if (values.leaves) {
      program_.buffers[b].values_of = type_;
    } else {
      program_.buffers[b].dtype = type_;
    }
  }

  void NarrowReluInput(const Instruction& instruction) {
    if (!TraitsOf(instruction.code).is_relu) return;
    const BufferIndex input = instruction.inputs[0];
    const Class& values = ClassOf(input);
    if (program_.buffers[instruction.outputs[0]].dtype != type_) return;
    if (values.is_rounded || values.enters || values.leaves || values.readers != 1) return;
    for (BufferIndex b = 0; b < static_cast<BufferIndex>(source_.size()); ++b) {
      if (source_[b] == source_[input]) program_.buffers[b].dtype = type_;
    }
  }

  const Recipe& recipe_;
  DType type_;
  StageDraft& draft_;
  Program& program_;
  std::vector<BufferIndex> source_;  // by buffer: what it is a copy of, or itself
  std::vector<Class> classes_;       // by source
};

}  // namespace

void StoreRounded(const Recipe& recipe, DType type, StageDraft& draft) {
  RoundedStorage(recipe, type, draft).Run();
}

}  // namespace runnel
