#include "kernels/ir/passes/mask_stash.h"

#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace runnel {
namespace {

constexpr int64_t kBits = 8;  // of a byte

// What keeps all that this gradient reads of its second operand.
std::optional<OpCode> MaskFor(OpCode gradient) {
  switch (gradient) {
    case OpCode::kReluInputGradient:
      return OpCode::kReluMask;
    case OpCode::kRelu6InputGradient:
      return OpCode::kRelu6Mask;
    default:
      return std::nullopt;
  }
}

class StashMasker {
 public:
  explicit StashMasker(StageDraft& draft)
      : draft_(draft), program_(draft.program), source_(program_.buffers.size()) {
    std::iota(source_.begin(), source_.end(), 0);
  }

  void Run() {
    FindMakers();
    for (const Part part : kBackward)
      for (const Instruction& instruction : program_.part(part)) FindReaders(instruction);
    for (const Part part : kBackward)
      for (Instruction& instruction : PartOf(part)) Replace(instruction);
    StoreMasks();
  }

 private:
  static constexpr Part kBackward[] = {Part::kInputGradient, Part::kWeightGradient};

  std::vector<Instruction>& PartOf(Part part) { return program_.parts[static_cast<int>(part)]; }

  void FindMakers() {
    for (const Instruction& instruction : program_.part(Part::kForward)) {
      if (instruction.code == OpCode::kCopy) {
        source_[instruction.outputs[0]] = source_[instruction.inputs[0]];
      } else if (TraitsOf(instruction.code).is_relu && instruction.gate == kNoGate &&
                 program_.buffers[instruction.outputs[0]].dtype == DType::kFloat32) {
        makers_[instruction.outputs[0]] = instruction.code;
      }
    }
  }

  void FindReaders(const Instruction& instruction) {
    for (size_t i = 0; i < instruction.inputs.size(); ++i) {
      if (!IsMasked(instruction, i)) whole_.insert(SourceOf(instruction.inputs[i]));
    }
    for (const BufferIndex kept : instruction.keeps) whole_.insert(SourceOf(kept));
  }

  BufferIndex SourceOf(BufferIndex value) const { return source_[static_cast<size_t>(value)]; }
  static bool IsMasked(const Instruction& reader, size_t operand) {
    return operand == 1 && MaskFor(reader.code).has_value() && reader.gate == kNoGate;
  }

  void Replace(Instruction& gradient) {
    if (gradient.inputs.size() < 2 || !IsMasked(gradient, 1)) return;
    const BufferIndex value = SourceOf(gradient.inputs[1]);
    if (makers_.count(value) == 0 || whole_.count(value) > 0) return;
    const auto [place, is_new] = masks_.try_emplace(value);
    if (is_new) {
      const int64_t elements = program_.buffers[value].shape.elements();
      place->second = {*MaskFor(gradient.code), static_cast<BufferIndex>(program_.buffers.size())};
      program_.buffers.push_back(
          {.dtype = DType::kUInt8, .shape = {(elements + kBits - 1) / kBits}});
      draft_.placed.push_back(false);
    }
    gradient.code = OpCode::kMaskedInputGradient;
    gradient.inputs[1] = place->second.second;
  }

  // Behind quantizers that follow the value's maker: backends run these together.
  void StoreMasks() {
    std::vector<Instruction> result;
    std::vector<Instruction> waiting;
    for (Instruction& instruction : PartOf(Part::kForward)) {
      const bool follows = !waiting.empty() &&
                           TraitsOf(instruction.code).numbers == Numbers::kGridFloats &&
                           instruction.inputs[0] == waiting[0].inputs[0];
      if (!follows) Flush(waiting, result);
      const auto mask = masks_.find(instruction.outputs[0]);
      const bool is_maker = makers_.count(instruction.outputs[0]) > 0 &&
                            makers_.at(instruction.outputs[0]) == instruction.code;
      if (mask != masks_.end() && is_maker) {
        Instruction& store = waiting.emplace_back();
        store.code = mask->second.first;
        store.layer = instruction.layer;
        store.op = instruction.op;
        store.inputs = {mask->first};
        store.outputs = {mask->second.second};
      }
      result.push_back(std::move(instruction));
    }
    Flush(waiting, result);
    PartOf(Part::kForward) = std::move(result);
  }
  static void Flush(std::vector<Instruction>& waiting, std::vector<Instruction>& part) {
    for (Instruction& store : waiting) part.push_back(std::move(store));
    waiting.clear();
  }

  StageDraft& draft_;
  Program& program_;
  std::vector<BufferIndex> source_;       // by value of the draft: what it is a copy of
  std::map<BufferIndex, OpCode> makers_;  // results of the forward's ReLUs
  std::set<BufferIndex> whole_;           // what the backward reads in full
  std::map<BufferIndex, std::pair<OpCode, BufferIndex>> masks_;  // by result: who makes it, where
};

}  // namespace

void MaskStash(StageDraft& draft) { StashMasker(draft).Run(); }

}  // namespace runnel
