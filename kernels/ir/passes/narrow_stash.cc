#include "kernels/ir/passes/narrow_stash.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace runnel {
namespace {

class StashNarrower {
 public:
  StashNarrower(const ModelSpec& model, StageDraft& draft)
      : model_(model),
        draft_(draft),
        program_(draft.program),
        source_(program_.buffers.size()),
        is_activation_(program_.buffers.size()) {
    std::iota(source_.begin(), source_.end(), 0);
  }

  void Run() {
    FindActivations();
    for (Part part : {Part::kInputGradient, Part::kWeightGradient}) ReadNarrow(part);
    WriteNarrow();
  }

 private:
  std::vector<Instruction>& PartOf(Part part) { return program_.parts[static_cast<int>(part)]; }

  bool IsState(BufferIndex b) const {
    const Storage storage = program_.buffers[b].storage;
    return draft_.placed[b] && (storage == Storage::kParameters || storage == Storage::kStatistics);
  }
  bool IsLoss(const Instruction& instruction) const {
    return std::any_of(instruction.inputs.begin(), instruction.inputs.end(), [this](BufferIndex b) {
      return draft_.placed[b] && program_.buffers[b].storage == Storage::kLabels;
    });
  }

  // Values of the forward that follow from samples: the first output of each instruction but the
  // loss and what is made of weights alone.
  void FindActivations() {
    for (BufferIndex b = 0; b < static_cast<BufferIndex>(source_.size()); ++b) {
      const bool enters = draft_.placed[b] && program_.buffers[b].storage == Storage::kInput;
      is_activation_[b] = enters && program_.first_layer > 0;
    }
    for (const Instruction& instruction : PartOf(Part::kForward)) {
      const BufferIndex from = instruction.inputs[0], to = instruction.outputs[0];
      if (IsLoss(instruction) || IsState(from) || of_state_.count(from) > 0) {
        of_state_.insert(to);
        continue;
      }
      const bool is_view = instruction.code == OpCode::kCopy &&
                           program_.buffers[from].dtype == program_.buffers[to].dtype;
      if (is_view) source_[to] = source_[from];
      is_activation_[to] = !is_view || is_activation_[source_[from]];
    }
    // The logits.
    for (BufferIndex b = 0; b < static_cast<BufferIndex>(source_.size()); ++b) {
      if (program_.has_loss && draft_.placed[b] && program_.buffers[b].storage == Storage::kOutput)
        is_activation_[source_[b]] = false;
    }
  }

  // The stash's type of a value for this reader; its own if nothing is gained.
  DType TypeFor(BufferIndex value, const Instruction& reader) const {
    const DType own = program_.buffers[value].dtype;
    const DType stash = model_.layers[static_cast<size_t>(reader.layer)].stash;
    return IsFloat(own) && SizeOf(stash) < SizeOf(own) ? stash : own;
  }

  BufferIndex Add(DType dtype, const Shape& shape) {
    program_.buffers.push_back({.dtype = dtype, .shape = shape});
    draft_.placed.push_back(false);
    return static_cast<BufferIndex>(program_.buffers.size()) - 1;
  }

  static Instruction CopyOf(BufferIndex from, BufferIndex to, const Instruction& place) {
    Instruction copy;
    copy.code = OpCode::kCopy;
    copy.layer = place.layer;
    copy.op = place.op;
    copy.inputs = {from};
    copy.outputs = {to};
    return copy;
  }

  void ReadNarrow(Part part) {
    std::map<std::pair<BufferIndex, DType>, BufferIndex> made;
    std::vector<Instruction> result;
    for (Instruction& instruction : PartOf(part)) {
      const Instruction place = instruction;
      for (BufferIndex& input : instruction.inputs) {
        if (static_cast<size_t>(input) >= source_.size()) continue;
        if (!is_activation_[source_[input]]) continue;
        const DType type = TypeFor(input, place);
        const Buffer value = program_.buffers[input];
        if (type == value.dtype) continue;
        BufferIndex& wide = made.try_emplace({input, type}, -1).first->second;
        if (wide < 0) {
          BufferIndex& narrow = narrow_.try_emplace({source_[input], type}, -1).first->second;
          if (narrow < 0) narrow = Add(type, program_.buffers[source_[input]].shape);
          wide = Add(value.dtype, value.shape);
          result.push_back(CopyOf(narrow, wide, place));
        }
        input = wide;
      }
      KeepWide(made, instruction);
      result.push_back(std::move(instruction));
    }
    PartOf(part) = std::move(result);
  }

  // What the instruction keeps for a fused step is what that reads now.
  void KeepWide(const std::map<std::pair<BufferIndex, DType>, BufferIndex>& made,
                Instruction& instruction) const {
    for (BufferIndex& kept : instruction.keeps) {
      const auto wide = static_cast<size_t>(kept) < source_.size()
                            ? made.find({kept, TypeFor(kept, instruction)})
                            : made.end();
      if (wide != made.end()) kept = wide->second;
    }
  }

  // Behind what makes the value; of what enters, in front.
  void WriteNarrow() {
    std::vector<Instruction> result;
    const std::vector<Instruction>& forward = PartOf(Part::kForward);
    const auto write = [&](BufferIndex value, const Instruction& place) {
      for (const auto& [key, narrow] : narrow_) {
        if (key.first == value) result.push_back(CopyOf(value, narrow, place));
      }
    };
    for (BufferIndex b = 0; b < static_cast<BufferIndex>(source_.size()); ++b) {
      if (draft_.placed[b] && program_.buffers[b].storage == Storage::kInput)
        write(b, forward.front());
    }
    for (const Instruction& instruction : forward) {
      result.push_back(instruction);
      write(instruction.outputs[0], instruction);
    }
    PartOf(Part::kForward) = std::move(result);
  }

  const ModelSpec& model_;
  StageDraft& draft_;
  Program& program_;
  std::vector<BufferIndex> source_;  // by buffer: what it is a view of, or itself
  std::vector<bool> is_activation_;  // by buffer
  std::set<BufferIndex> of_state_;   // made of weights alone, and of the loss
  std::map<std::pair<BufferIndex, DType>, BufferIndex> narrow_;  // by source and type
};

}  // namespace

bool HasNarrowStash(const ModelSpec& model, DType values) {
  return std::any_of(model.layers.begin(), model.layers.end(), [values](const LayerSpec& layer) {
    return SizeOf(layer.stash) < SizeOf(values);
  });
}

void NarrowStash(const ModelSpec& model, StageDraft& draft) { StashNarrower(model, draft).Run(); }

}  // namespace runnel
