#include "kernels/ir/passes/step_in_backward.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

namespace runnel {
namespace {

constexpr std::array<Part, 2> kBackward = {Part::kInputGradient, Part::kWeightGradient};

bool Contains(const std::vector<BufferIndex>& operands, BufferIndex buffer) {
  return std::find(operands.begin(), operands.end(), buffer) != operands.end();
}

// A part of the backward and an instruction in it.
using Place = std::pair<size_t, size_t>;

class Mover {
 public:
  explicit Mover(StageDraft& draft) : draft_(draft), program_(draft.program) {}

  void Run() {
    if (MovesUpdates()) {
      for (size_t part = 0; part < kBackward.size(); ++part) Insert(part);
      return;
    }
    std::vector<Instruction>& updates = program_.parts[static_cast<int>(Part::kUpdate)];
    if (updates.empty()) return;
    whole_ = std::move(updates.front());
    updates.clear();
    const BufferIndex count = static_cast<BufferIndex>(program_.buffers.size());
    for (BufferIndex gradient = 0; gradient < count; ++gradient) {
      if (program_.buffers[gradient].storage != Storage::kGradients) continue;
      const BufferIndex weight = WeightOf(gradient);
      if (weight >= 0) AddUpdate(gradient, weight);
    }
    for (size_t part = 0; part < kBackward.size(); ++part) Insert(part);
  }

 private:
  // Some recipes update tensor by tensor anyway; false: the update is one of all tensors.
  bool MovesUpdates() {
    std::vector<Instruction>& updates = program_.parts[static_cast<int>(Part::kUpdate)];
    if (updates.empty() || updates.front().code == OpCode::kOptimizerUpdate) return false;
    for (Instruction& update : updates) {
      const BufferIndex weight = update.inputs[0], gradient = update.inputs[1];
      MoveToScratch(gradient);
      updates_[LastUse(gradient, weight)].push_back(std::move(update));
    }
    updates.clear();
    return true;
  }

  // The last instruction that writes the gradient or reads the weight.
  Place LastUse(BufferIndex gradient, BufferIndex weight) const {
    Place last = {0, 0};
    for (size_t part = 0; part < kBackward.size(); ++part) {
      for (size_t i = 0; i < PartOf(part).size(); ++i) {
        const Instruction& instruction = PartOf(part)[i];
        if (Contains(instruction.outputs, gradient) || Contains(instruction.inputs, weight))
          last = {part, i};
      }
    }
    return last;
  }

  const std::vector<Instruction>& PartOf(size_t part) const {
    return program_.part(kBackward[part]);
  }

  BufferIndex WeightOf(BufferIndex gradient) const {
    const Buffer& g = program_.buffers[gradient];
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& b = program_.buffers[i];
      if (b.storage == Storage::kParameters && b.offset_bytes == g.offset_bytes &&
          b.shape == g.shape) {
        return static_cast<BufferIndex>(i);
      }
    }
    return -1;
  }

  // The part of an operand of the whole update that lies like `like` among the parameters.
  BufferIndex AddPart(BufferIndex whole, const Buffer& like) {
    const Buffer& all = program_.buffers[whole];
    program_.buffers.push_back(
        {all.storage, like.dtype, like.shape, all.offset_bytes + like.offset_bytes});
    draft_.placed.push_back(true);
    return static_cast<BufferIndex>(program_.buffers.size()) - 1;
  }

  void AddUpdate(BufferIndex gradient, BufferIndex weight) {
    const Place last = LastUse(gradient, weight);
    const Instruction* writer = nullptr;
    for (size_t part = 0; part < kBackward.size(); ++part) {
      for (const Instruction& instruction : PartOf(part)) {
        if (Contains(instruction.outputs, gradient)) writer = &instruction;
      }
    }
    if (writer == nullptr) return;  // the one over all gradients at once, of a single tensor
    Instruction update = whole_;
    update.layer = writer->layer;
    update.op = writer->op;
    const Buffer like = program_.buffers[weight];
    update.inputs = {weight, gradient};
    for (size_t slot = 2; slot < whole_.inputs.size(); ++slot)
      update.inputs.push_back(AddPart(whole_.inputs[slot], like));
    update.outputs = {AddPart(whole_.outputs[0], like)};
    updates_[last].push_back(std::move(update));
    MoveToScratch(gradient);
  }

  // Flat: a weight-gradient is row-major, whatever lies beside it.
  void MoveToScratch(BufferIndex gradient) {
    Buffer& value = program_.buffers[gradient];
    value = {Storage::kScratch, value.dtype, {value.shape.elements()}, 0, value.scaled};
    draft_.placed[gradient] = false;
  }

  void Insert(size_t part) {
    std::vector<Instruction>& from = program_.parts[static_cast<int>(kBackward[part])];
    std::vector<Instruction> result;
    for (size_t i = 0; i < from.size(); ++i) {
      result.push_back(std::move(from[i]));
      for (Instruction& update : updates_[{part, i}]) result.push_back(std::move(update));
    }
    from = std::move(result);
  }

  StageDraft& draft_;
  Program& program_;
  Instruction whole_;                                  // the update of all tensors
  std::map<Place, std::vector<Instruction>> updates_;  // by what they come behind
};

}  // namespace

void StepInBackward(StageDraft& draft) { Mover(draft).Run(); }

}  // namespace runnel
