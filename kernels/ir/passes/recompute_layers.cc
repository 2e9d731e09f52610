#include "kernels/ir/passes/recompute_layers.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace runnel {
namespace {

class LayerRecomputer {
 public:
  LayerRecomputer(const ModelSpec& model, bool masks_follow, StageDraft& draft)
      : model_(model), masks_follow_(masks_follow), draft_(draft), program_(draft.program) {}

  void Run() {
    for (const Instruction& instruction : program_.part(Part::kForward)) NoteMaker(instruction);
    for (const Instruction& instruction : program_.part(Part::kForward)) DropOutputs(instruction);
    KeepCodes();
    for (Part part : kBackward) MakeAgain(part);
  }

 private:
  static constexpr Part kBackward[] = {Part::kInputGradient, Part::kWeightGradient};

  static bool MakesCodes(const Instruction& instruction) {
    return instruction.code == OpCode::kAffineActivationCodes ||
           instruction.code == OpCode::kSymmetricActivationCodes;
  }

  bool IsLoss(const Instruction& instruction) const {
    for (BufferIndex input : instruction.inputs) {
      if (program_.buffers[input].storage == Storage::kLabels) return true;
    }
    return false;
  }

  void NoteMaker(const Instruction& instruction) {
    if (!model_.layers[instruction.layer].recompute || IsLoss(instruction)) return;
    // Their statistics move once.
    if (instruction.code == OpCode::kRangeNormForward ||
        instruction.code == OpCode::kFixedNormForward)
      return;
    const bool is_norm = instruction.code == OpCode::kBatchNormForward;
    for (size_t i = 0; i < (is_norm ? 1 : instruction.outputs.size()); ++i) {
      const BufferIndex output = instruction.outputs[i];
      if (!draft_.placed[output]) makers_[output] = instruction;
    }
  }

  // What another layer reads is kept for it.
  void DropOutputs(const Instruction& instruction) {
    for (BufferIndex input : instruction.inputs) {
      const auto maker = makers_.find(input);
      if (maker != makers_.end() && maker->second.layer != instruction.layer) makers_.erase(maker);
    }
  }

  // What a copy inside of the layer is of.
  BufferIndex SourceOf(BufferIndex value) const {
    for (auto maker = makers_.find(value);
         maker != makers_.end() && maker->second.code == OpCode::kCopy; maker = makers_.find(value))
      value = maker->second.inputs[0];
    return value;
  }

  // Codes of a value that enters the layer are kept in its place, unless the backward reads the value
  // itself, too.
  void KeepCodes() {
    std::map<BufferIndex, Instruction> of_outside;  // by codes
    for (const auto& [output, maker] : makers_) {
      if (!MakesCodes(maker)) continue;
      const BufferIndex source = SourceOf(maker.inputs[0]);
      if (makers_.count(source) == 0 && !draft_.placed[source]) of_outside.emplace(output, maker);
    }
    for (const auto& [output, maker] : of_outside) makers_.erase(output);
    std::set<BufferIndex> read;
    for (const Part part : kBackward)
      for (const Instruction& instruction : program_.part(part)) FindRead(instruction, read);
    for (const auto& [output, maker] : of_outside) {
      if (read.count(SourceOf(maker.inputs[0])) > 0) makers_.emplace(output, maker);
    }
  }

  void FindRead(const Instruction& instruction, std::set<BufferIndex>& read) const {
    const bool is_relu = instruction.code == OpCode::kReluInputGradient ||
                         instruction.code == OpCode::kRelu6InputGradient;
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      // Of a result that is kept, a mask will do.
      if (is_relu && i == 1 && masks_follow_ && makers_.count(instruction.inputs[i]) == 0) continue;
      FindRead(instruction.inputs[i], read);
    }
  }
  void FindRead(BufferIndex value, std::set<BufferIndex>& read) const {
    if (!read.insert(value).second) return;
    if (const auto maker = makers_.find(value); maker != makers_.end())
      for (const BufferIndex input : maker->second.inputs) FindRead(input, read);
  }

  void MakeAgain(Part part) {
    std::map<BufferIndex, BufferIndex> made;
    std::vector<Instruction> result;
    for (Instruction& instruction : program_.parts[static_cast<int>(part)]) {
      for (BufferIndex& input : instruction.inputs) input = Again(input, made, result);
      result.push_back(std::move(instruction));
    }
    program_.parts[static_cast<int>(part)] = std::move(result);
  }

  BufferIndex Again(BufferIndex value, std::map<BufferIndex, BufferIndex>& made,
                    std::vector<Instruction>& part) {
    const auto maker = makers_.find(value);
    if (maker == makers_.end()) return value;
    if (const auto known = made.find(value); known != made.end()) return known->second;
    Instruction again = maker->second;
    if (again.code == OpCode::kBatchNormForward) {
      again.code = OpCode::kBatchNormAgain;
      again.inputs.push_back(again.outputs[1]);
      again.outputs.resize(1);
    }
    // The range has been kept.
    if (again.code == OpCode::kAffineActivation || again.code == OpCode::kSymmetricActivation)
      again.outputs.resize(1);
    if (MakesCodes(again)) again.outputs.resize(2);
    for (BufferIndex& input : again.inputs) input = Again(input, made, part);
    for (BufferIndex& output : again.outputs) {
      const Buffer like = program_.buffers[output];
      program_.buffers.push_back(like);
      draft_.placed.push_back(false);
      output = made[output] = static_cast<BufferIndex>(program_.buffers.size()) - 1;
    }
    part.push_back(std::move(again));
    return made[value];
  }

  const ModelSpec& model_;
  const bool masks_follow_;
  StageDraft& draft_;
  Program& program_;
  std::map<BufferIndex, Instruction> makers_;  // of the values inside of such layers
};

}  // namespace

void RecomputeLayers(const ModelSpec& model, bool masks_follow, StageDraft& draft) {
  LayerRecomputer(model, masks_follow, draft).Run();
}

}  // namespace runnel
