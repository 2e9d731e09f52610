#include "kernels/ir/co_scheduler/segments.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "kernels/ir/co_scheduler/segment_order.h"
#include "proto/base/model/number_format.h"

namespace runnel {
namespace {

int64_t AlignUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Whether and where a value is beyond the segment that writes it.
struct ValueUse {
  int processor = -1;   // of its writer; -1: the stage's caller
  size_t segment = 0;   // of its writer
  bool leaves = false;  // to the host's memory
  bool stays = false;   // in the processor's, for a later segment
};

std::vector<ValueUse> FindUses(const ProgramFlow& flow, const std::vector<SegmentPlan>& plans,
                               const std::vector<bool>& keeps_values) {
  std::array<std::map<int, size_t>, kPartCount> segments;  // by part and instruction
  for (size_t i = 0; i < plans.size(); ++i) {
    for (const int instruction : plans[i].instructions)
      segments[static_cast<size_t>(plans[i].part)][instruction] = i;
  }
  const auto segment_of = [&](Part part, int instruction) {
    return segments[static_cast<size_t>(part)].at(instruction);
  };
  std::vector<ValueUse> uses;
  for (const FlowValue& value : flow.values) {
    ValueUse& use = uses.emplace_back();
    if (value.writer < 0) continue;
    use.segment = segment_of(value.part, value.writer);
    use.processor = plans[use.segment].processor;
    const bool is_inner =
        value.place.storage == Storage::kStash || value.place.storage == Storage::kScratch;
    use.leaves = !is_inner && value.survives_part;
    const bool keeps =
        is_inner && use.processor > 0 && keeps_values[static_cast<size_t>(use.processor)];
    for (const FlowValue::Reader& reader : value.readers) {
      const size_t segment = segment_of(reader.part, reader.instruction);
      if (segment == use.segment) continue;
      if (keeps && plans[segment].processor == use.processor) {
        use.stays = true;
      } else {
        use.leaves = true;
      }
    }
  }
  return uses;
}

// Lays out one segment.
class SegmentBuilder {
 public:
  SegmentBuilder(const Program& program, const ProgramFlow& flow, const std::vector<ValueUse>& uses,
                 const SegmentPlan& plan, size_t number)
      : program_(program), flow_(flow), uses_(uses), number_(number) {
    segment_.part = plan.part;
    segment_.instructions = plan.instructions;
    segment_.processor = plan.processor;
    segment_.after = plan.after;
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
    for (const int i : segment_.instructions) AddInstruction(i);
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
  void AddInstruction(int number) {
    const ProgramFlow::Operands& values = flow_.of(segment_.part, number);
    Instruction instruction = program_.part(segment_.part)[static_cast<size_t>(number)];
    const std::vector<BufferIndex> outputs = instruction.outputs;
    for (size_t k = 0; k < instruction.inputs.size(); ++k) {
      NoteState(instruction.inputs[k], TraitsOf(instruction.code).WritesInput(k));
      instruction.inputs[k] = Place(instruction.inputs[k], values.inputs[k]);
    }
    for (size_t k = 0; k < instruction.outputs.size(); ++k) {
      NoteState(instruction.outputs[k], /*writes=*/true);
      instruction.outputs[k] = Place(instruction.outputs[k], values.outputs[k]);
    }
    instruction.keeps.clear();
    std::vector<Instruction>& part = segment_.program.parts[static_cast<size_t>(segment_.part)];
    part.push_back(std::move(instruction));
    // Its place may be used again before the segment is done.
    for (size_t k = 0; k < outputs.size(); ++k) {
      const int value = values.outputs[k];
      if (value == kNoValue || !UseOf(value).stays || !UseOf(value).leaves) continue;
      const BufferIndex here = part.back().outputs[k];
      Instruction copy;
      copy.code = OpCode::kCopy;
      copy.layer = part.back().layer;
      copy.op = part.back().op;
      copy.inputs = {here};
      copy.outputs = {PlaceCopy(value, segment_.program.buffers[static_cast<size_t>(here)])};
      part.push_back(std::move(copy));
    }
  }

  const ValueUse& UseOf(int value) const { return uses_[static_cast<size_t>(value)]; }
  bool Writes(int value) const {
    return UseOf(value).processor >= 0 && UseOf(value).segment == number_;
  }

  bool IsIntegerGradient(const FlowValue& value) const {
    if (value.writer < 0) return false;
    const Instruction& writer = program_.part(value.part)[static_cast<size_t>(value.writer)];
    return TraitsOf(writer.code).is_integer_weight_gradient();
  }

  BufferIndex AddBuffer(const Buffer& buffer) {
    int64_t& extent = segment_.extents[static_cast<size_t>(buffer.storage)];
    extent = std::max(extent, buffer.offset_bytes + buffer.bytes());
    segment_.program.buffers.push_back(buffer);
    return static_cast<BufferIndex>(segment_.program.buffers.size() - 1);
  }

  // The segment's buffer for a buffer of the program.
  BufferIndex Place(BufferIndex index, int value) {
    const auto known = buffers_.find({index, value});
    if (known != buffers_.end()) return known->second;
    Buffer buffer = program_.buffers[static_cast<size_t>(index)];
    if (value != kNoValue) PlaceValue(value, buffer);
    return buffers_[{index, value}] = AddBuffer(buffer);
  }

  void PlaceValue(int number, Buffer& buffer) {
    const FlowValue& value = flow_.values[static_cast<size_t>(number)];
    const ValueUse& use = UseOf(number);
    const bool is_own = Writes(number), leaves = is_own && use.leaves;
    const bool is_inner =
        value.place.storage == Storage::kStash || value.place.storage == Storage::kScratch;
    // What an in-place instruction overwrites in kOutput has a place there too, and is not copied.
    if (is_own && is_inner && (!leaves || use.stays)) return;
    if (!is_own && use.stays && use.processor == segment_.processor) return;
    buffer.storage = is_own ? Storage::kOutput : Storage::kInput;
    // Weights and their gradients lie otherwise than their shapes say: nobody is to turn them.
    if (IsIntegerGradient(value)) buffer.shape = Shape{1, buffer.shape.elements()};
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

  // A place in kOutput beside the one where the value stays.
  BufferIndex PlaceCopy(int number, Buffer buffer) {
    buffer.storage = Storage::kOutput;
    buffer.offset_bytes = segment_.out_bytes;
    segment_.out_bytes += AlignUp(buffer.bytes());
    TensorCopy copy = CopyOf(flow_.values[static_cast<size_t>(number)].place);
    copy.packed_bytes = buffer.offset_bytes;
    segment_.out.push_back(copy);
    return AddBuffer(buffer);
  }

  void NoteState(BufferIndex index, bool writes) {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(index)];
    if (!IsState(buffer.storage)) return;
    const TensorCopy copy = CopyOf(buffer);
    const bool is_new_version = buffer.storage == Storage::kNewParameters;
    if (!is_new_version) segment_.state_read.push_back(copy);
    if (writes) segment_.state_written.push_back(copy);
  }

  const Program& program_;
  const ProgramFlow& flow_;
  const std::vector<ValueUse>& uses_;
  const size_t number_;
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
    case Storage::kSlots:
    case Storage::kStatistics:
      return true;
    default:
      return false;
  }
}

std::vector<Segment> CutIntoSegments(const Program& program, const ProgramFlow& flow,
                                     const Assignment& assignment, const Grouping& grouping,
                                     const std::vector<bool>& keeps_values) {
  const std::vector<SegmentPlan> plans =
      OrderSegments(program, flow, assignment, grouping, keeps_values);
  const std::vector<ValueUse> uses = FindUses(flow, plans, keeps_values);
  std::vector<Segment> segments;
  for (size_t i = 0; i < plans.size(); ++i)
    segments.push_back(SegmentBuilder(program, flow, uses, plans[i], i).Build());
  return segments;
}

}  // namespace runnel
