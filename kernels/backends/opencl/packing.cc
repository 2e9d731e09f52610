#include "kernels/backends/opencl/packing.h"

#include <algorithm>

#include "kernels/backends/opencl/product/code_pairs.h"

namespace runnel::opencl {
namespace {

constexpr int64_t kLanes = 4;
// More taps might be cut into slices, which a depthwise product is not.
constexpr int64_t kMostTaps = 1024;

// What an instruction's kernel takes in cells: its first inputs and its output, all of them or none if they are alike.
struct PackedRow {
  OpCode code;
  size_t inputs;
  bool output;
  bool alike = false;
};
constexpr PackedRow kPackedRows[] = {
    {OpCode::kInt8ConvForward, 1, false},
    {OpCode::kRequantizeCodes, 1, true},
    {OpCode::kAddCodes, 2, true, true},
    {OpCode::kPadCodes, 1, true},
    {OpCode::kInt8MaxPoolForward, 1, true},
    {OpCode::kInt8AvgPoolForward, 1, false},
    {OpCode::kInt8GlobalAvgPoolForward, 1, false},
    {OpCode::kCodesToChannelsFirst, 0, true},
    {OpCode::kCodesToChannelsLast, 1, false},
};

const PackedRow* FindPackedRow(OpCode code) {
  for (const PackedRow& row : kPackedRows) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

bool FillsCells(const Buffer& buffer) {
  const Shape& shape = buffer.shape;
  return buffer.storage == Storage::kScratch && buffer.dtype == DType::kInt8 && buffer.scaled &&
         shape.rank() == 4 && shape[1] % kLanes == 0 && shape[2] * shape[3] > 1;
}

class PackedFinder {
 public:
  explicit PackedFinder(const Program& program)
      : program_(program), part_(program.part(Part::kForwardEval)) {}

  std::vector<bool> Find() {
    packed_.assign(program_.buffers.size(), false);
    for (const Instruction& instruction : part_) {
      for (const BufferIndex output : instruction.outputs)
        packed_[static_cast<size_t>(output)] = FillsCells(buffer(output));
    }
    for (size_t at = 0; at < part_.size(); ++at) {
      DropWithoutKernel(part_[at]);
      for (const BufferIndex input : part_[at].inputs) DropViews(at, input);
    }
    while (DropUnlike()) {
    }
    return packed_;
  }

 private:
  const Buffer& buffer(BufferIndex index) const {
    return program_.buffers[static_cast<size_t>(index)];
  }
  void Drop(BufferIndex index) { packed_[static_cast<size_t>(index)] = false; }
  bool IsPacked(BufferIndex index) const { return packed_[static_cast<size_t>(index)]; }

  // A cell has channels of one group; or each group has one.
  bool ReadsCells(const Instruction& conv) const {
    const int64_t of_group = buffer(conv.inputs[1]).shape[1];
    const int64_t taps = conv.attributes.kernel[0] * conv.attributes.kernel[1];
    return of_group % kLanes == 0 ||
           (of_group == 1 && conv.attributes.groups > 1 && taps <= kMostTaps);
  }

  void DropWithoutKernel(const Instruction& instruction) {
    const PackedRow* row = FindPackedRow(instruction.code);
    const bool is_conv = instruction.code == OpCode::kInt8ConvForward;
    const size_t inputs = row == nullptr || (is_conv && !ReadsCells(instruction)) ? 0 : row->inputs;
    for (size_t i = inputs; i < instruction.inputs.size(); ++i) Drop(instruction.inputs[i]);
    const size_t outputs = row != nullptr && row->output ? 1 : 0;
    for (size_t i = outputs; i < instruction.outputs.size(); ++i) Drop(instruction.outputs[i]);
  }

  // What is read has to be what was written under its own name: neither another buffer's bytes nor those of somebody
  // outside.
  void DropViews(size_t reader, BufferIndex read) {
    if (buffer(read).storage != Storage::kScratch) return;
    for (size_t at = reader; at-- > 0;) {
      for (const BufferIndex output : part_[at].outputs) {
        if (output == read) return;
        if (!Overlap(buffer(output), buffer(read))) continue;
        Drop(output);
        Drop(read);
      }
    }
    Drop(read);
  }

  // Also of an instruction that works in place: else a code might be overwritten before it is read.
  bool HasToBeAlike(const Instruction& instruction, const PackedRow& row) const {
    const auto overlaps = [&](BufferIndex input) {
      return Overlap(buffer(input), buffer(instruction.outputs[0]));
    };
    return row.alike || std::any_of(instruction.inputs.begin(), instruction.inputs.end(), overlaps);
  }

  // True: some were dropped.
  bool DropUnlike() {
    bool drops = false;
    for (const Instruction& instruction : part_) {
      const PackedRow* row = FindPackedRow(instruction.code);
      if (row == nullptr || !HasToBeAlike(instruction, *row)) continue;
      std::vector<BufferIndex> all(
          instruction.inputs.begin(),
          instruction.inputs.begin() + static_cast<ptrdiff_t>(row->inputs));
      all.push_back(instruction.outputs[0]);
      const auto packed =
          std::count_if(all.begin(), all.end(), [&](BufferIndex index) { return IsPacked(index); });
      if (packed == 0 || packed == static_cast<ptrdiff_t>(all.size())) continue;
      for (const BufferIndex index : all) Drop(index);
      drops = true;
    }
    return drops;
  }

  const Program& program_;
  const std::vector<Instruction>& part_;
  std::vector<bool> packed_;  // by buffer
};

}  // namespace

std::vector<bool> FindPacked(const Program& program) {
  if (program.constants == nullptr) return std::vector<bool>(program.buffers.size(), false);
  return PackedFinder(program).Find();
}

}  // namespace runnel::opencl
