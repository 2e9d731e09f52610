#include "kernels/ir/co_scheduler/segment_order.h"

#include <algorithm>
#include <utility>

namespace runnel {
namespace {

// Bytes of the stage's own memory that an instruction touches, itself or by a copy of its segment.
struct Access {
  Storage storage = Storage::kScratch;
  int64_t begin = 0, end = 0;
  bool writes = false;
};
using Accesses = std::vector<Access>;

bool Collide(const Access& a, const Access& b) {
  return (a.writes || b.writes) && a.storage == b.storage && a.begin < b.end && b.begin < a.end;
}

bool Collide(const Accesses& a, const Accesses& b) {
  return std::any_of(a.begin(), a.end(), [&](const Access& one) {
    return std::any_of(b.begin(), b.end(),
                       [&](const Access& other) { return Collide(one, other); });
  });
}

class Orderer {
 public:
  Orderer(const Program& program, const ProgramFlow& flow, const Assignment& assignment,
          const Grouping& grouping, const std::vector<bool>& keeps_values)
      : program_(program),
        flow_(flow),
        assignment_(assignment),
        grouping_(grouping),
        keeps_values_(keeps_values) {}

  std::vector<SegmentPlan> Run() {
    for (int part = 0; part < kPartCount; ++part) {
      // A weight-gradient may begin beside the input-gradient.
      if (static_cast<Part>(part) != Part::kWeightGradient) first_ = plans_.size();
      part_begin_ = plans_.size();
      for (int i = 0; i < static_cast<int>(assignment_[static_cast<size_t>(part)].size()); ++i)
        Add(static_cast<Part>(part), i);
    }
    return std::move(plans_);
  }

 private:
  int ProcessorOf(Part part, int instruction) const {
    return assignment_[static_cast<size_t>(part)][static_cast<size_t>(instruction)];
  }

  // Whether the value never leaves the memory of the processor that wrote it.
  bool IsPrivate(const FlowValue& value) const {
    if (value.writer < 0) return false;
    if (value.place.storage != Storage::kStash && value.place.storage != Storage::kScratch)
      return false;
    const int processor = ProcessorOf(value.part, value.writer);
    if (processor == 0 || !keeps_values_[static_cast<size_t>(processor)]) return false;
    return std::all_of(value.readers.begin(), value.readers.end(),
                       [&](const FlowValue::Reader& reader) {
                         return ProcessorOf(reader.part, reader.instruction) == processor;
                       });
  }

  void AddAccess(const Buffer& buffer, int value, int processor, bool is_output,
                 Accesses& to) const {
    Access access = {buffer.storage, buffer.offset_bytes, buffer.offset_bytes + buffer.bytes(),
                     is_output};
    if (value != kNoValue) {
      const FlowValue& one = flow_.values[static_cast<size_t>(value)];
      if (IsPrivate(one)) return;
      // It is there already.
      const bool is_kept = one.writer >= 0 && processor > 0 && !is_output &&
                           keeps_values_[static_cast<size_t>(processor)] &&
                           one.place.storage != Storage::kOutput &&
                           one.place.storage != Storage::kInputGradient &&
                           ProcessorOf(one.part, one.writer) == processor;
      if (is_kept) return;
    }
    if (buffer.storage == Storage::kNewParameters) access.storage = Storage::kParameters;
    // A processor's copy of the weights is renewed as a whole.
    if (access.storage == Storage::kParameters && processor > 0 && !is_output) {
      access.begin = 0;
      access.end = program_.state.parameter_bytes;
    }
    to.push_back(access);
  }

  Accesses AccessesOf(Part part, int number) const {
    const Instruction& instruction = program_.part(part)[static_cast<size_t>(number)];
    const ProgramFlow::Operands& values = flow_.of(part, number);
    const int processor = ProcessorOf(part, number);
    Accesses accesses;
    for (size_t k = 0; k < instruction.inputs.size(); ++k) {
      const bool writes = TraitsOf(instruction.code).WritesInput(k);
      AddAccess(program_.buffers[static_cast<size_t>(instruction.inputs[k])], values.inputs[k],
                processor, writes, accesses);
    }
    for (size_t k = 0; k < instruction.outputs.size(); ++k) {
      AddAccess(program_.buffers[static_cast<size_t>(instruction.outputs[k])], values.outputs[k],
                processor, true, accesses);
    }
    return accesses;
  }

  int GroupOf(Part part, int instruction) const {
    const std::vector<int>& numbers = grouping_[static_cast<size_t>(part)];
    return numbers.empty() ? 0 : numbers[static_cast<size_t>(instruction)];
  }

  // The segment of this part that the instruction may join; plans_.size(): none.
  size_t SegmentFor(Part part, int number, const Accesses& accesses) const {
    const int processor = ProcessorOf(part, number);
    const bool neighbours_only = grouping_[static_cast<size_t>(part)].empty();
    for (size_t at = plans_.size(); at-- > part_begin_;) {
      if (plans_[at].processor == processor) {
        const int last = plans_[at].instructions.back();
        const bool joins = GroupOf(part, last) == GroupOf(part, number) &&
                           (!neighbours_only || last == number - 1);
        return joins ? at : plans_.size();
      }
      if (Collide(accesses_[at], accesses)) break;
    }
    return plans_.size();
  }

  void Add(Part part, int number) {
    Accesses accesses = AccessesOf(part, number);
    const size_t at = SegmentFor(part, number, accesses);
    if (at == plans_.size()) {
      plans_.push_back({part, ProcessorOf(part, number), {}, {}});
      accesses_.emplace_back();
    }
    SegmentPlan& plan = plans_[at];
    plan.instructions.push_back(number);
    for (size_t before = first_; before < at; ++before) {
      const int known = static_cast<int>(before);
      if (plans_[before].processor == plan.processor || !Collide(accesses_[before], accesses))
        continue;
      if (std::find(plan.after.begin(), plan.after.end(), known) == plan.after.end())
        plan.after.push_back(known);
    }
    accesses_[at].insert(accesses_[at].end(), accesses.begin(), accesses.end());
  }

  const Program& program_;
  const ProgramFlow& flow_;
  const Assignment& assignment_;
  const Grouping& grouping_;
  const std::vector<bool>& keeps_values_;
  std::vector<SegmentPlan> plans_;
  std::vector<Accesses> accesses_;  // by segment
  size_t first_ = 0;                // segment that those of this part may have to wait for
  size_t part_begin_ = 0;           // this part's first segment
};

}  // namespace

std::vector<SegmentPlan> OrderSegments(const Program& program, const ProgramFlow& flow,
                                       const Assignment& assignment, const Grouping& grouping,
                                       const std::vector<bool>& keeps_values) {
  return Orderer(program, flow, assignment, grouping, keeps_values).Run();
}

}  // namespace runnel
