#include "kernels/ir/passes/recompute_layers.h"

#include <map>
#include <utility>
#include <vector>

namespace runnel {
namespace {

class LayerRecomputer {
 public:
  LayerRecomputer(const ModelSpec& model, StageDraft& draft)
      : model_(model), draft_(draft), program_(draft.program) {}

  void Run() {
    for (const Instruction& instruction : program_.part(Part::kForward)) NoteMaker(instruction);
    for (const Instruction& instruction : program_.part(Part::kForward)) DropOutputs(instruction);
    for (Part part : {Part::kInputGradient, Part::kWeightGradient}) MakeAgain(part);
  }

 private:
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
    if (again.code == OpCode::kAffineActivationCodes ||
        again.code == OpCode::kSymmetricActivationCodes)
      again.outputs.resize(2);
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
  StageDraft& draft_;
  Program& program_;
  std::map<BufferIndex, Instruction> makers_;  // of the values inside of such layers
};

}  // namespace

void RecomputeLayers(const ModelSpec& model, StageDraft& draft) {
  LayerRecomputer(model, draft).Run();
}

}  // namespace runnel
