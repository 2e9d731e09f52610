#include "tests/kernels/rearranged_program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr int64_t kAlignment = 64;
constexpr Part kOrder[] = {Part::kForward, Part::kInputGradient, Part::kWeightGradient,
                           Part::kForwardEval, Part::kUpdate};

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool IsPlanned(const Buffer& buffer) {
  return buffer.storage == Storage::kStash || buffer.storage == Storage::kScratch;
}

template <typename A, typename B>
bool Overlap(const A& a, int64_t a_bytes, const B& b, int64_t b_bytes) {
  return a.storage == b.storage && a.offset_bytes < b.offset_bytes + b_bytes &&
         b.offset_bytes < a.offset_bytes + a_bytes;
}

class Follower {
 public:
  explicit Follower(const Program& program)
      : program_(program), is_written_(program.buffers.size()) {
    result_.value_of.assign(program.buffers.size(), -1);
    for (const Part part : kOrder) {
      for (const Instruction& instruction : program.part(part)) {
        for (const BufferIndex output : instruction.outputs) is_written_[At(output)] = true;
      }
    }
  }

  absl::StatusOr<ProgramValues> Run() {
    for (const Part part : kOrder) {
      result_.start[static_cast<size_t>(part)] = time_;
      // What evaluation and update read they have written themselves.
      if (part == Part::kForwardEval || part == Part::kUpdate) writes_.clear();
      for (const Instruction& instruction : program_.part(part)) {
        RUNNEL_RETURN_IF_ERROR(Follow(instruction));
        ++time_;
      }
    }
    const int backward = result_.start[static_cast<size_t>(Part::kInputGradient)];
    for (const PlannedValue& value : result_.values) {
      result_.crosses_in_scratch |=
          value.storage == Storage::kScratch && value.first < backward && value.last >= backward;
    }
    return std::move(result_);
  }

 private:
  static size_t At(BufferIndex index) { return static_cast<size_t>(index); }
  const Buffer& BufferOf(BufferIndex index) const { return program_.buffers[At(index)]; }
  absl::Status Wrong(const Instruction& instruction, const char* what) const {
    return absl::InternalError(absl::StrCat(Name(instruction.code), " of layer ", instruction.layer,
                                            " ", what, ", at time ", time_));
  }

  absl::Status Follow(const Instruction& instruction) {
    for (const auto* operands : {&instruction.inputs, &instruction.keeps}) {
      for (const BufferIndex input : *operands) RUNNEL_RETURN_IF_ERROR(Read(instruction, input));
    }
    const OpTraits& traits = TraitsOf(instruction.code);
    for (size_t i = 0; i < instruction.outputs.size(); ++i) {
      const BufferIndex output = instruction.outputs[i];
      if (!IsPlanned(BufferOf(output))) continue;
      // Gradients that the backward's own steps read are of one micro-batch (steps_in_backward).
      const bool adds = !instruction.overwrites && !program_.part(Part::kUpdate).empty();
      if (traits.ReadsOutput(i) && adds)
        return Wrong(instruction, "changes a value that the memory plan owns");
      RUNNEL_RETURN_IF_ERROR(CheckOutput(instruction, i));
      Write(output);
    }
    return absl::OkStatus();
  }

  // The last one to write any of these bytes wrote this value.
  absl::Status Read(const Instruction& instruction, BufferIndex input) {
    const Buffer& buffer = BufferOf(input);
    if (!IsPlanned(buffer)) return absl::OkStatus();
    for (size_t i = writes_.size(); i-- > 0;) {
      PlannedValue& value = result_.values[At(writes_[i])];
      if (!Overlap(value, value.bytes, buffer, buffer.bytes())) continue;
      const bool is_view = !is_written_[At(input)] && value.offset_bytes == buffer.offset_bytes &&
                           buffer.bytes() <= value.bytes;
      if (value.writer != input && !is_view)
        return Wrong(instruction, "reads what another value has overwritten");
      result_.value_of[At(input)] = writes_[i];
      value.last = time_;
      return absl::OkStatus();
    }
    return Wrong(instruction, "reads what nobody wrote");
  }

  absl::Status CheckOutput(const Instruction& instruction, size_t i) const {
    const Buffer& written = BufferOf(instruction.outputs[i]);
    for (const BufferIndex input : instruction.inputs) {
      const Buffer& read = BufferOf(input);
      if (!Overlap(written, written.bytes(), read, read.bytes())) continue;
      const bool adds = instruction.code == OpCode::kInt8ProductToCodes ||
                        instruction.code == OpCode::kScatterSamples;
      const bool may = adds || (i == 0 && TraitsOf(instruction.code).in_place);
      if (!may || written.offset_bytes != read.offset_bytes || written.bytes() != read.bytes())
        return Wrong(instruction, "writes over its own input");
    }
    for (size_t other = 0; other < i; ++other) {
      const Buffer& also = BufferOf(instruction.outputs[other]);
      if (Overlap(written, written.bytes(), also, also.bytes()))
        return Wrong(instruction, "writes two outputs in one place");
    }
    return absl::OkStatus();
  }

  void Write(BufferIndex output) {
    const Buffer& buffer = BufferOf(output);
    result_.value_of[At(output)] = static_cast<int>(result_.values.size());
    writes_.push_back(static_cast<int>(result_.values.size()));
    result_.values.push_back(
        {output, buffer.storage, buffer.offset_bytes, buffer.bytes(), time_, time_});
  }

  const Program& program_;
  std::vector<bool> is_written_;  // by buffer
  std::vector<int> writes_;       // values, in the order in which they were written
  ProgramValues result_;
  int time_ = 0;
};

// Places values, or groups of them, anew.
class Arranger {
 public:
  Arranger(const Program& program, ProgramValues values, Arrangement arrangement, uint64_t seed)
      : result_(program),
        values_(std::move(values)),
        is_spread_(arrangement == Arrangement::kSpread),
        is_loose_(arrangement == Arrangement::kLoose),
        random_(seed, RandomPurpose::kTest, 11, 0),
        group_of_(values_.values.size()) {
    for (size_t i = 0; i < group_of_.size(); ++i) group_of_[i] = static_cast<int>(i);
    groups_ = values_.values;
  }

  Program Run() {
    if (!is_spread_) WorkInPlace();
    std::vector<int> order;
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (group_of_[i] == static_cast<int>(i)) order.push_back(static_cast<int>(i));
    }
    for (size_t i = order.size(); !is_spread_ && i-- > 1;)
      std::swap(order[i], order[static_cast<size_t>(Below(static_cast<uint32_t>(i) + 1))]);
    for (const int group : order) Place(groups_[static_cast<size_t>(group)]);
    for (size_t b = 0; b < result_.buffers.size(); ++b) {
      if (values_.value_of[b] < 0) continue;
      const PlannedValue& group =
          groups_[static_cast<size_t>(group_of_[static_cast<size_t>(values_.value_of[b])])];
      result_.buffers[b].storage = group.storage;
      result_.buffers[b].offset_bytes = group.offset_bytes;
    }
    result_.stash_bytes = ends_[0];
    result_.scratch_bytes = ends_[1];
    return std::move(result_);
  }

 private:
  int64_t Below(uint32_t bound) { return random_.Below(next_++, bound); }
  int StartOf(Part part) const { return values_.start[static_cast<size_t>(part)]; }

  void WorkInPlace() {
    for (const Part part : kOrder) {
      int time = StartOf(part);
      for (const Instruction& instruction : result_.part(part)) {
        if (TraitsOf(instruction.code).in_place && (!is_loose_ || Below(4) > 0))
          TakeOver(instruction, time);
        ++time;
      }
    }
  }

  void TakeOver(const Instruction& instruction, int time) {
    const int output = values_.value_of[static_cast<size_t>(instruction.outputs[0])];
    if (output < 0) return;
    const Buffer& written = result_.buffers[static_cast<size_t>(instruction.outputs[0])];
    for (const BufferIndex input : instruction.inputs) {
      const int value = values_.value_of[static_cast<size_t>(input)];
      if (value < 0) continue;
      const int group = group_of_[static_cast<size_t>(value)];
      PlannedValue& dying = groups_[static_cast<size_t>(group)];
      const Buffer& read = result_.buffers[static_cast<size_t>(input)];
      if (dying.last != time || read.dtype != written.dtype || read.bytes() != written.bytes() ||
          dying.bytes != written.bytes())
        continue;
      group_of_[static_cast<size_t>(output)] = group;
      dying.last = groups_[static_cast<size_t>(output)].last;
      return;
    }
  }

  // Where a value may lie, by how long it lives.
  Storage ChooseStorage(const PlannedValue& group) {
    const int backward = StartOf(Part::kInputGradient);
    if (group.first >= StartOf(Part::kForwardEval)) return Storage::kScratch;
    if (values_.crosses_in_scratch || result_.stash_bytes == 0) return Storage::kScratch;
    if (group.first < backward && group.last >= backward) return Storage::kStash;
    return !is_spread_ && Below(2) == 0 ? Storage::kStash : Storage::kScratch;
  }

  void Place(PlannedValue& group) {
    group.storage = ChooseStorage(group);
    int64_t& end = ends_[group.storage == Storage::kStash ? 0 : 1];
    group.offset_bytes = end;
    if (!is_spread_) {
      std::vector<int64_t> near, legal;
      FindPlaces(group, &near, &legal);
      const std::vector<int64_t>& from = !near.empty() && Below(4) > 0 ? near : legal;
      if (!from.empty())
        group.offset_bytes = from[static_cast<size_t>(Below(static_cast<uint32_t>(from.size())))];
    }
    end = std::max(end, AlignUp(group.offset_bytes + group.bytes));
    placed_.push_back(&group);
  }

  // Places around those of other values. near: over a part of one that died shortly before.
  void FindPlaces(const PlannedValue& group, std::vector<int64_t>* near,
                  std::vector<int64_t>* legal) {
    constexpr int kShortly = 2;
    for (const PlannedValue* other : placed_) {
      if (other->storage != group.storage || LiveTogether(*other, group)) continue;
      const int64_t blocks = AlignUp(other->bytes) / kAlignment;
      const int64_t own = AlignUp(group.bytes) / kAlignment;
      const int64_t inside = Below(static_cast<uint32_t>(blocks)) * kAlignment;
      const int64_t before = Below(static_cast<uint32_t>(own)) * kAlignment;
      const int distance =
          other->last < group.first ? group.first - other->last : other->first - group.last;
      for (const int64_t at :
           {other->offset_bytes, other->offset_bytes + inside, other->offset_bytes - before}) {
        PlannedValue moved = group;
        moved.offset_bytes = at;
        if (at < 0 || !IsFree(moved)) continue;
        legal->push_back(at);
        if (distance <= kShortly && at != other->offset_bytes) near->push_back(at);
      }
    }
  }

  static bool LiveTogether(const PlannedValue& a, const PlannedValue& b) {
    return a.first <= b.last && b.first <= a.last;
  }
  bool IsFree(const PlannedValue& moved) const {
    return std::none_of(placed_.begin(), placed_.end(), [&](const PlannedValue* other) {
      return LiveTogether(*other, moved) &&
             Overlap(*other, AlignUp(other->bytes), moved, AlignUp(moved.bytes));
    });
  }

  Program result_;
  const ProgramValues values_;
  const bool is_spread_, is_loose_;
  const CounterRandom random_;
  uint64_t next_ = 0;
  std::vector<int> group_of_;         // by value: the first value of the group
  std::vector<PlannedValue> groups_;  // by value; those of group_of_ count
  std::vector<const PlannedValue*> placed_;
  int64_t ends_[2] = {0, 0};  // of the stash, of the scratch
};

struct Range {
  Storage storage;
  int64_t begin, end;
};

// Adds copies over dead values.
class Poisoner {
 public:
  Poisoner(const Program& program, ProgramValues values, const BoundaryFn& is_boundary)
      : result_(program), values_(std::move(values)), is_boundary_(is_boundary) {
    done_.resize(values_.values.size());
  }

  Program Run(int64_t* poison_offset) {
    poison_at_ = AlignUp(result_.scratch_bytes);
    for (const Part part :
         {Part::kForward, Part::kInputGradient, Part::kWeightGradient, Part::kForwardEval})
      AddTo(part);
    for (const BufferIndex source : sources_) {
      result_.scratch_bytes = std::max(
          result_.scratch_bytes, poison_at_ + result_.buffers[static_cast<size_t>(source)].bytes());
    }
    result_.scratch_bytes = AlignUp(result_.scratch_bytes);
    *poison_offset = poison_at_;
    return std::move(result_);
  }

 private:
  void AddTo(Part part) {
    std::vector<Instruction> with;
    const std::vector<Instruction>& without = result_.part(part);
    if (without.empty()) return;
    const int start = values_.start[static_cast<size_t>(part)];
    for (size_t i = 0; i <= without.size(); ++i) {
      if (is_boundary_(part, i)) {
        for (const Range& range : DeadAt(part, start + static_cast<int>(i))) {
          if (range.end > range.begin)
            with.push_back(CopyOver(range, without[std::min(i, without.size() - 1)]));
        }
      }
      if (i < without.size()) with.push_back(without[i]);
    }
    result_.parts[static_cast<size_t>(part)] = std::move(with);
  }

  // Bytes of values that were read for the last time before `time`, and that no value which lives has.
  std::vector<Range> DeadAt(Part part, int time) {
    const int evaluation = values_.start[static_cast<size_t>(Part::kForwardEval)];
    std::vector<Range> dead;
    for (size_t i = 0; i < done_.size(); ++i) {
      const PlannedValue& value = values_.values[i];
      const bool is_evaluated = value.first >= evaluation;
      if (done_[i] || value.last >= time || is_evaluated != (part == Part::kForwardEval)) continue;
      done_[i] = true;
      std::vector<Range> left = {
          {value.storage, value.offset_bytes, value.offset_bytes + value.bytes}};
      for (const PlannedValue& live : values_.values) {
        if (live.first < time && live.last >= time) CutOut(live, left);
      }
      dead.insert(dead.end(), left.begin(), left.end());
    }
    return dead;
  }

  // Of ranges of 64 bytes, so that each begins where a buffer may.
  static void CutOut(const PlannedValue& live, std::vector<Range>& ranges) {
    const int64_t begin = live.offset_bytes, end = AlignUp(live.offset_bytes + live.bytes);
    std::vector<Range> left;
    for (const Range& range : ranges) {
      if (range.storage != live.storage || range.end <= begin || end <= range.begin) {
        left.push_back(range);
        continue;
      }
      if (range.begin < begin) left.push_back({range.storage, range.begin, begin});
      if (end < range.end) left.push_back({range.storage, end, range.end});
    }
    ranges = std::move(left);
  }

  Instruction CopyOver(const Range& range, const Instruction& near) {
    Buffer target;
    target.storage = range.storage;
    target.dtype = DType::kUInt8;
    target.shape = {range.end - range.begin};
    target.offset_bytes = range.begin;
    Buffer source = target;
    source.storage = Storage::kScratch;
    source.offset_bytes = poison_at_;
    const auto first = static_cast<BufferIndex>(result_.buffers.size());
    result_.buffers.push_back(source);
    result_.buffers.push_back(target);
    sources_.push_back(first);
    Instruction copy;
    copy.code = OpCode::kCopy;
    copy.inputs = {first};
    copy.outputs = {first + 1};
    copy.layer = near.layer;
    copy.op = near.op;
    return copy;
  }

  Program result_;
  const ProgramValues values_;
  const BoundaryFn& is_boundary_;
  std::vector<bool> done_;  // by value
  std::vector<BufferIndex> sources_;
  int64_t poison_at_ = 0;
};

}  // namespace

absl::StatusOr<ProgramValues> FollowMemory(const Program& program) {
  return Follower(program).Run();
}

absl::StatusOr<Program> Rearrange(const Program& program, Arrangement arrangement, uint64_t seed) {
  RUNNEL_ASSIGN_OR_RETURN(ProgramValues values, FollowMemory(program));
  return Arranger(program, std::move(values), arrangement, seed).Run();
}

absl::StatusOr<Program> PoisonDeadValues(const Program& program, const BoundaryFn& is_boundary,
                                         int64_t* poison_offset) {
  RUNNEL_ASSIGN_OR_RETURN(ProgramValues values, FollowMemory(program));
  return Poisoner(program, std::move(values), is_boundary).Run(poison_offset);
}

}  // namespace runnel
