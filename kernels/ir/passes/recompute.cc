#include "kernels/ir/passes/recompute.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernels/ir/passes/narrow_stash.h"

namespace runnel {
namespace {

bool IsRelu(OpCode code) { return TraitsOf(code).is_relu; }
bool IsReader(OpCode code) {
  return code == OpCode::kConvForward || code == OpCode::kConvInputGradient ||
         code == OpCode::kConvWeightGradient;
}

class Rewriter {
 public:
  explicit Rewriter(StageDraft& draft) : draft_(draft), program_(draft.program) {}

  void RecomputeNorms(const ModelSpec& model) {
    within_layers_ = HasNarrowStash(model, program_.values);
    for (const Instruction& instruction : program_.part(Part::kForward)) {
      if (!model.layers[instruction.layer].recompute) NoteMaker(instruction);
    }
    for (Part part : {Part::kInputGradient, Part::kWeightGradient}) MakeAgain(PartOf(part));
    KeepForward(PartOf(Part::kForwardEval));
    KeepBackward(PartOf(Part::kInputGradient));
  }

  // Right before the operator's input-gradient, which reads the same dy, or else right behind what
  // makes dy.
  void MoveWeightGradients() {
    std::vector<Instruction> staying, moving;
    for (Instruction& gradient : PartOf(Part::kWeightGradient)) {
      // What leads from a fake-quantised weight's gradient to its master's moves with it.
      const bool of_master = gradient.code == OpCode::kFakeQuantizeWeightGradient;
      if (!of_master) InsertAll(moving);
      const bool moves = of_master || gradient.code == OpCode::kConvWeightGradient ||
                         gradient.code == OpCode::kLinearWeightGradient ||
                         gradient.code == OpCode::kCodesWeightGradient;
      (moves ? moving : staying).push_back(std::move(gradient));
    }
    InsertAll(moving);
    PartOf(Part::kWeightGradient) = std::move(staying);
  }

 private:
  std::vector<Instruction>& PartOf(Part part) { return program_.parts[static_cast<int>(part)]; }

  // A weight-gradient and what follows from it.
  void InsertAll(std::vector<Instruction>& gradients) {
    if (gradients.empty()) return;
    Insert(gradients);
    gradients.clear();
    program_.early_weight_gradients = true;
  }

  void Insert(const std::vector<Instruction>& gradients) {
    std::vector<Instruction>& part = PartOf(Part::kInputGradient);
    const Instruction& gradient = gradients.front();
    const auto is_input_gradient = [&](const Instruction& other) {
      return (other.code == OpCode::kConvInputGradient ||
              other.code == OpCode::kLinearInputGradient ||
              other.code == OpCode::kCodesInputGradient) &&
             other.layer == gradient.layer && other.op == gradient.op;
    };
    auto at = std::find_if(part.begin(), part.end(), is_input_gradient);
    if (at == part.end()) {
      at = part.begin();
      for (auto it = part.begin(); it != part.end(); ++it) {
        const bool is_read = it->outputs[0] == gradient.inputs[0] ||
                             it->outputs[0] == gradient.inputs[1];  // an input rounded again
        if (is_read) at = it + 1;
      }
    }
    part.insert(at, gradients.begin(), gradients.end());
  }

  void NoteMaker(const Instruction& instruction) {
    const bool norm = instruction.code == OpCode::kBatchNormForward;
    const bool relu = IsRelu(instruction.code) && makers_.count(instruction.inputs[0]) > 0 &&
                      makers_[instruction.inputs[0]].size() == 1;
    if (!norm && !relu) return;
    std::vector<Instruction> chain;
    if (relu) chain = makers_[instruction.inputs[0]];
    chain.push_back(instruction);
    if (norm) {
      Instruction& again = chain.back();
      again.code = OpCode::kBatchNormAgain;
      again.inputs.push_back(again.outputs[1]);
      again.outputs.resize(1);
    }
    makers_[instruction.outputs[0]] = std::move(chain);
  }

  void MakeAgain(std::vector<Instruction>& part) {
    std::map<BufferIndex, BufferIndex> made;
    std::vector<Instruction> result;
    for (Instruction& instruction : part) {
      for (BufferIndex& input : instruction.inputs) {
        const auto maker = makers_.find(input);
        if (maker == makers_.end()) continue;
        if (within_layers_ && maker->second.back().layer != instruction.layer) continue;
        if (made.count(input) == 0) made[input] = Emit(maker->second, &result);
        input = made[input];
      }
      result.push_back(std::move(instruction));
    }
    part = std::move(result);
  }

  // The chain with new outputs; returns the last one.
  BufferIndex Emit(const std::vector<Instruction>& chain, std::vector<Instruction>* part) {
    BufferIndex last = -1;
    for (Instruction instruction : chain) {
      if (last >= 0) instruction.inputs[0] = last;
      const Buffer& like = program_.buffers[instruction.outputs[0]];
      program_.buffers.push_back({.dtype = like.dtype,
                                  .shape = like.shape,
                                  .values_of = like.values_of,
                                  .packed_by = like.packed_by});
      draft_.placed.push_back(false);
      last = instruction.outputs[0] = static_cast<BufferIndex>(program_.buffers.size()) - 1;
      part->push_back(std::move(instruction));
    }
    return last;
  }

  // What a normalisation reads stays until the convolution that reads its output is done. But a
  // convolution's own output does not: the normalisation behind it is done in place, with the
  // convolution's sums.
  static void KeepForward(std::vector<Instruction>& part) {
    std::map<BufferIndex, BufferIndex> source;
    std::set<BufferIndex> sums;
    for (Instruction& instruction : part) {
      const auto known = source.find(instruction.inputs[0]);
      if (instruction.code == OpCode::kConvForward) sums.insert(instruction.outputs[0]);
      if (instruction.code == OpCode::kBatchNormEval) {
        if (sums.count(instruction.inputs[0]) > 0) continue;
        source[instruction.outputs[0]] = instruction.inputs[0];
      } else if (IsRelu(instruction.code) && known != source.end()) {
        source[instruction.outputs[0]] = known->second;
      } else if (IsReader(instruction.code) && known != source.end()) {
        instruction.keeps.push_back(known->second);
      }
    }
  }

  static void KeepBackward(std::vector<Instruction>& part) {
    std::map<BufferIndex, std::pair<BufferIndex, BufferIndex>> sources;
    for (Instruction& instruction : part) {
      if (instruction.code == OpCode::kBatchNormInputGradient) {
        sources[instruction.outputs[0]] = {instruction.inputs[0], instruction.inputs[1]};
      }
      const auto known = sources.find(instruction.inputs[0]);
      if (IsReader(instruction.code) && known != sources.end()) {
        instruction.keeps.insert(instruction.keeps.end(),
                                 {known->second.first, known->second.second});
      }
    }
  }

  StageDraft& draft_;
  Program& program_;
  bool within_layers_ = false;  // for readers of the normalisation's own layer alone
  // What makes a value of the forward: one or two instructions, the first a kBatchNormAgain.
  std::map<BufferIndex, std::vector<Instruction>> makers_;
};

}  // namespace

void MoveWeightGradients(StageDraft& draft) {
  if (!draft.program.needs_input_gradient) Rewriter(draft).MoveWeightGradients();
}

void RecomputeNorms(const ModelSpec& model, StageDraft& draft) {
  Rewriter(draft).RecomputeNorms(model);
}

}  // namespace runnel
