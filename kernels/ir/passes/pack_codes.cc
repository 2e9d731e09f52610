#include "kernels/ir/passes/pack_codes.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "kernels/ir/arithmetic/code_pairs.h"

namespace runnel {
namespace {

class CodePacker {
 public:
  CodePacker(int most_bits, StageDraft& draft)
      : most_bits_(most_bits), draft_(draft), program_(draft.program) {}

  void Run() {
    for (const Instruction& instruction : program_.part(Part::kForward)) FindCodes(instruction);
    for (const Part part : {Part::kInputGradient, Part::kWeightGradient}) Unpack(PartOf(part));
    Pack(PartOf(Part::kForward));
  }

 private:
  std::vector<Instruction>& PartOf(Part part) { return program_.parts[static_cast<int>(part)]; }

  void FindCodes(const Instruction& maker) {
    const BufferIndex codes = maker.outputs.empty() ? -1 : maker.outputs[0];
    const int bits = maker.grid.is_fixed ? maker.grid.bits : std::max(maker.grid.bits, most_bits_);
    if (maker.code == OpCode::kAffineActivationCodes && bits <= kPairedBits &&
        maker.gate == kNoGate && program_.buffers[codes].packed_by == kNoGate)
      packed_[codes] = kNotNeeded;
  }

  BufferIndex Add(Buffer buffer) {
    program_.buffers.push_back(std::move(buffer));
    draft_.placed.push_back(false);
    return static_cast<BufferIndex>(program_.buffers.size()) - 1;
  }

  static Instruction Make(OpCode code, BufferIndex from, BufferIndex to, const Instruction& place) {
    Instruction made;
    made.code = code;
    made.layer = place.layer;
    made.op = place.op;
    made.inputs = {from};
    made.outputs = {to};
    return made;
  }

  void Unpack(std::vector<Instruction>& part) {
    std::map<BufferIndex, BufferIndex> whole;  // by codes of the forward
    std::vector<Instruction> result;
    for (Instruction& instruction : part) {
      for (BufferIndex& input : instruction.inputs) {
        const auto packed = packed_.find(input);
        if (packed == packed_.end()) continue;
        const auto [codes, is_first] = whole.try_emplace(input);
        if (is_first) {
          const Buffer like = program_.buffers[input];
          if (packed->second == kNotNeeded)
            packed->second =
                Add({.dtype = DType::kUInt8, .shape = {PairedBytes(like.shape.elements())}});
          codes->second = Add(like);
          result.push_back(Make(OpCode::kUnpackCodes, packed->second, codes->second, instruction));
        }
        input = codes->second;
      }
      for (BufferIndex& kept : instruction.keeps) {
        if (const auto codes = whole.find(kept); codes != whole.end()) kept = codes->second;
      }
      result.push_back(std::move(instruction));
    }
    part = std::move(result);
  }

  // In front of the first reader, not behind the maker, where others stand that run in one step with
  // it. What the backward reads of a product the product has read.
  void Pack(std::vector<Instruction>& forward) {
    std::vector<Instruction> result;
    for (Instruction& instruction : forward) {
      for (const BufferIndex input : instruction.inputs) {
        const auto packed = packed_.find(input);
        if (packed == packed_.end() || packed->second == kNotNeeded) continue;
        result.push_back(Make(OpCode::kPackCodes, input, packed->second, instruction));
        packed_.erase(packed);
      }
      result.push_back(std::move(instruction));
    }
    forward = std::move(result);
  }

  static constexpr BufferIndex kNotNeeded = -1;  // no backward part reads these codes

  const int most_bits_;
  StageDraft& draft_;
  Program& program_;
  std::map<BufferIndex, BufferIndex> packed_;  // by codes that the forward makes
};

}  // namespace

void PackCodes(int most_bits, StageDraft& draft) { CodePacker(most_bits, draft).Run(); }

}  // namespace runnel
