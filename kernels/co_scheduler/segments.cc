#include "kernels/co_scheduler/segments.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "proto/base/tensor/number_format.h"

namespace runnel {
namespace {

int64_t AlignUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Lays out one segment.
class SegmentBuilder {
 public:
  SegmentBuilder(const Program& program, const ProgramFlow& flow, Part part, int first, int count,
                 int processor)
      : program_(program), flow_(flow) {
    segment_.part = part;
    segment_.first = first;
    segment_.count = count;
    segment_.processor = processor;
  }

  Segment Build() {
    Program& own = segment_.program;
    own.first_layer = program_.first_layer;
    own.last_layer = program_.last_layer;
    own.batch = program_.batch;
    own.has_loss = program_.has_loss;
    own.needs_input_gradient = program_.needs_input_gradient;
    own.input = program_.input;
    own.output = program_.output;
    own.state = program_.state;
    const std::vector<Instruction>& all = program_.part(segment_.part);
    for (int i = segment_.first; i < segment_.first + segment_.count; ++i) {
      const ProgramFlow::Operands& values = flow_.of(segment_.part, i);
      Instruction instruction = all[static_cast<size_t>(i)];
      for (size_t k = 0; k < instruction.inputs.size(); ++k) {
        NoteState(instruction, instruction.inputs[k], /*is_output=*/false);
        instruction.inputs[k] = Place(instruction.inputs[k], values.inputs[k]);
      }
      for (size_t k = 0; k < instruction.outputs.size(); ++k) {
        NoteState(instruction, instruction.outputs[k], /*is_output=*/true);
        instruction.outputs[k] = Place(instruction.outputs[k], values.outputs[k]);
      }
      instruction.keeps.clear();
      own.parts[static_cast<size_t>(segment_.part)].push_back(std::move(instruction));
    }
    const auto extent = [&](Storage storage) {
      return AlignUp(segment_.extents[static_cast<size_t>(storage)]);
    };
    own.stash_bytes = extent(Storage::kStash);
    own.scratch_bytes = extent(Storage::kScratch);
    own.input_bytes = segment_.in_bytes;
    own.output_bytes = segment_.out_bytes;
    return std::move(segment_);
  }

 private:
  bool Writes(const FlowValue& value) const {
    return value.part == segment_.part && value.writer >= segment_.first &&
           value.writer < segment_.first + segment_.count;
  }

  // Whether anybody beyond the segment wants what it wrote.
  bool Leaves(const FlowValue& value) const {
    const bool is_boundary =
        value.place.storage == Storage::kOutput || value.place.storage == Storage::kInputGradient;
    if (is_boundary && value.survives_part) return true;
    return std::any_of(
        value.readers.begin(), value.readers.end(), [&](const FlowValue::Reader& reader) {
          return reader.part != segment_.part || reader.instruction < segment_.first ||
                 reader.instruction >= segment_.first + segment_.count;
        });
  }

  bool IsWeightGradient(const FlowValue& value) const {
    if (value.writer < 0) return false;
    const OpCode code = program_.part(value.part)[static_cast<size_t>(value.writer)].code;
    return code == OpCode::kInt8ConvWeightGradient || code == OpCode::kInt8LinearWeightGradient;
  }

  // The segment's buffer for a buffer of the program.
  BufferIndex Place(BufferIndex index, int value) {
    const auto [known, is_new] =
        buffers_.try_emplace({index, value}, static_cast<BufferIndex>(buffers_.size()));
    if (!is_new) return known->second;
    Buffer buffer = program_.buffers[index];
    if (value != kNoValue) PlaceValue(value, buffer);
    int64_t& extent = segment_.extents[static_cast<size_t>(buffer.storage)];
    extent = std::max(extent, buffer.offset_bytes + buffer.bytes());
    segment_.program.buffers.push_back(buffer);
    return known->second;
  }

  void PlaceValue(int number, Buffer& buffer) {
    const FlowValue& value = flow_.values[static_cast<size_t>(number)];
    const bool is_own = Writes(value), leaves = is_own && Leaves(value);
    const bool is_inner =
        value.place.storage == Storage::kStash || value.place.storage == Storage::kScratch;
    // What an in-place instruction overwrites in kOutput has a place there too, and is not copied.
    if (is_own && !leaves && is_inner) return;
    buffer.storage = is_own ? Storage::kOutput : Storage::kInput;
    // Weights and their gradients lie otherwise than their shapes say: nobody is to turn them.
    if (IsWeightGradient(value)) buffer.shape = Shape{1, buffer.shape.elements()};
    int64_t& end = is_own ? segment_.out_bytes : segment_.in_bytes;
    const auto [place, is_new] = packed_.try_emplace(number, end);
    buffer.offset_bytes = place->second;
    if (!is_new) return;
    end += AlignUp(value.place.bytes());
    TensorCopy copy = CopyOf(value.place);
    copy.packed_bytes = place->second;
    if (!is_own) segment_.in.push_back(copy);
    if (leaves) segment_.out.push_back(copy);
  }

  void NoteState(const Instruction& instruction, BufferIndex index, bool is_output) {
    const Buffer& buffer = program_.buffers[index];
    if (!IsState(buffer.storage)) return;
    const TensorCopy copy = CopyOf(buffer);
    const bool is_new_version = buffer.storage == Storage::kNewParameters;
    const bool writes = is_output || (instruction.code == OpCode::kSgdUpdate &&
                                      buffer.storage == Storage::kMomentum);
    if (!is_new_version) segment_.state_read.push_back(copy);
    if (writes) segment_.state_written.push_back(copy);
  }

  const Program& program_;
  const ProgramFlow& flow_;
  Segment segment_;
  std::map<std::pair<BufferIndex, int>, BufferIndex> buffers_;
  std::map<int, int64_t> packed_;  // by value: its offset in kInput or kOutput
};

}  // namespace

TensorCopy CopyOf(const Buffer& buffer) {
  TensorCopy copy;
  copy.storage = buffer.storage;
  copy.offset_bytes = buffer.offset_bytes;
  copy.element_bytes = buffer.shape.elements() * static_cast<int64_t>(SizeOf(buffer.dtype));
  if (buffer.scaled) copy.tail_bytes = buffer.bytes() - static_cast<int64_t>(sizeof(ScaleTail));
  return copy;
}

void CopyTensor(const TensorCopy& tensor, const std::byte* from, std::byte* to) {
  std::memcpy(to, from, static_cast<size_t>(tensor.element_bytes));
  if (tensor.tail_bytes > 0)
    std::memcpy(to + tensor.tail_bytes, from + tensor.tail_bytes, sizeof(ScaleTail));
}

bool IsState(Storage storage) {
  switch (storage) {
    case Storage::kParameters:
    case Storage::kNewParameters:
    case Storage::kGradients:
    case Storage::kMomentum:
    case Storage::kStatistics:
      return true;
    default:
      return false;
  }
}

Segment MakeSegment(const Program& program, const ProgramFlow& flow, Part part, int first,
                    int count, int processor) {
  return SegmentBuilder(program, flow, part, first, count, processor).Build();
}

std::vector<Segment> CutIntoSegments(const Program& program, const ProgramFlow& flow,
                                     const Assignment& assignment) {
  std::vector<Segment> segments;
  for (int part = 0; part < kPartCount; ++part) {
    const std::vector<int>& processors = assignment[static_cast<size_t>(part)];
    const int count = static_cast<int>(processors.size());
    for (int first = 0, end = 0; first < count; first = end) {
      const int processor = processors[static_cast<size_t>(first)];
      while (end < count && processors[static_cast<size_t>(end)] == processor) ++end;
      segments.push_back(
          MakeSegment(program, flow, static_cast<Part>(part), first, end - first, processor));
    }
  }
  return segments;
}

}  // namespace runnel
