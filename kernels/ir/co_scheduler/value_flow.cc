#include "kernels/ir/co_scheduler/value_flow.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Follows the contents of memory through the parts.
class Follower {
 public:
  explicit Follower(const Program& program) : program_(program) {}

  absl::StatusOr<ProgramFlow> Run() {
    for (Part part : {Part::kForward, Part::kInputGradient, Part::kWeightGradient})
      RUNNEL_RETURN_IF_ERROR(FollowPart(part));
    // These share nothing with training.
    for (Part part : {Part::kForwardEval, Part::kUpdate}) {
      for (auto& contents : contents_) contents.clear();
      RUNNEL_RETURN_IF_ERROR(FollowPart(part));
    }
    return std::move(flow_);
  }

 private:
  struct Content {
    int64_t begin = 0, end = 0;
    int value = kNoValue;
  };

  absl::Status FollowPart(Part part) {
    const std::vector<Instruction>& instructions = program_.part(part);
    for (int i = 0; i < static_cast<int>(instructions.size()); ++i) {
      const Instruction& instruction = instructions[static_cast<size_t>(i)];
      ProgramFlow::Operands operands;
      for (BufferIndex input : instruction.inputs) {
        RUNNEL_ASSIGN_OR_RETURN(const int value, Read(program_.buffers[input], part, i));
        operands.inputs.push_back(value);
      }
      for (BufferIndex output : instruction.outputs)
        operands.outputs.push_back(Write(program_.buffers[output], part, i));
      flow_.operands[static_cast<size_t>(part)].push_back(std::move(operands));
    }
    for (const auto& contents : contents_) {
      for (const Content& content : contents) {
        FlowValue& value = flow_.values[static_cast<size_t>(content.value)];
        value.survives_part = value.survives_part || value.part == part;
      }
    }
    return absl::OkStatus();
  }

  std::vector<Content>& ContentsOf(Storage storage) {
    return contents_[static_cast<size_t>(storage)];
  }

  absl::StatusOr<int> Read(const Buffer& buffer, Part part, int instruction) {
    if (!HoldsValues(buffer.storage)) return kNoValue;
    const int64_t begin = buffer.offset_bytes, end = begin + buffer.bytes();
    for (const Content& content : ContentsOf(buffer.storage)) {
      if (content.begin >= end || content.end <= begin) continue;
      if (content.begin != begin || content.end < end) {
        return absl::InternalError(
            absl::StrCat(Describe(part, instruction), " reads a part of a value"));
      }
      flow_.values[static_cast<size_t>(content.value)].readers.push_back({part, instruction});
      return content.value;
    }
    if (buffer.storage != Storage::kInput && buffer.storage != Storage::kOutputGradient) {
      return absl::InternalError(
          absl::StrCat(Describe(part, instruction), " reads what nobody wrote"));
    }
    const int value = Add(buffer, part, -1);
    flow_.values[static_cast<size_t>(value)].readers.push_back({part, instruction});
    return value;
  }

  int Write(const Buffer& buffer, Part part, int instruction) {
    if (!HoldsValues(buffer.storage)) return kNoValue;
    const int64_t begin = buffer.offset_bytes, end = begin + buffer.bytes();
    std::erase_if(ContentsOf(buffer.storage), [&](const Content& content) {
      return content.begin < end && begin < content.end;
    });
    return Add(buffer, part, instruction);
  }

  int Add(const Buffer& buffer, Part part, int writer) {
    const int value = static_cast<int>(flow_.values.size());
    flow_.values.push_back({.place = buffer, .part = part, .writer = writer, .readers = {}});
    ContentsOf(buffer.storage)
        .push_back({buffer.offset_bytes, buffer.offset_bytes + buffer.bytes(), value});
    return value;
  }

  std::string Describe(Part part, int instruction) const {
    const Instruction& one = program_.part(part)[static_cast<size_t>(instruction)];
    return absl::StrCat(Name(one.code), " of layer ", one.layer, ", op ", one.op);
  }

  const Program& program_;
  ProgramFlow flow_;
  std::array<std::vector<Content>, kStorageCount> contents_;
};

}  // namespace

bool HoldsValues(Storage storage) {
  switch (storage) {
    case Storage::kInput:
    case Storage::kOutput:
    case Storage::kOutputGradient:
    case Storage::kInputGradient:
    case Storage::kStash:
    case Storage::kScratch:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<ProgramFlow> FollowValues(const Program& program) { return Follower(program).Run(); }

}  // namespace runnel
