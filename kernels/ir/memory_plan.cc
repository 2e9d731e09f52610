#include "kernels/ir/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace runnel {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// The order in which lifetimes are counted. Evaluation stands last: it shares nothing with
// training.
constexpr Part kTimeline[] = {Part::kForward, Part::kInputGradient, Part::kWeightGradient,
                              Part::kForwardEval};

int64_t AlignUp(int64_t bytes) {
  return (bytes + AreaPlan::kAlignment - 1) / AreaPlan::kAlignment * AreaPlan::kAlignment;
}

class Planner {
 public:
  Planner(const std::vector<bool>& placed, bool one_in_flight, Program& program)
      : program_(program),
        one_in_flight_(one_in_flight),
        parent_(placed.size()),
        lives_(placed.size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
    for (size_t i = 0; i < placed.size(); ++i) lives_[i].placed = placed[i];
  }

  void Run() {
    MeasureLives();
    for (Part part : kTimeline) {
      for (const Instruction& instruction : program_.part(part)) MergeCopy(instruction);
    }
    MergeInPlace();
    PlaceAll();
    for (Part part : kTimeline) EraseViews(program_.parts[static_cast<int>(part)]);
    for (Part part : {Part::kInputGradient, Part::kWeightGradient}) {
      for (const Instruction& instruction : program_.part(part)) {
        for (BufferIndex b : instruction.inputs) {
          program_.backward_reads_output |= program_.buffers[b].storage == Storage::kOutput;
        }
      }
    }
  }

 private:
  // A set of buffers that share memory, kept at its representative.
  struct Life {
    bool placed = false;
    int first = std::numeric_limits<int>::max();
    int last = -1;
  };

  int Root(int b) {
    while (parent_[b] != b) b = parent_[b] = parent_[parent_[b]];
    return b;
  }
  Life& LifeOf(int b) { return lives_[Root(b)]; }

  void MeasureLives() {
    int time = 0;
    for (Part part : kTimeline) {
      start_[static_cast<int>(part)] = time;
      for (const Instruction& instruction : program_.part(part)) {
        for (const auto* operands :
             {&instruction.inputs, &instruction.outputs, &instruction.keeps}) {
          for (BufferIndex b : *operands) {
            lives_[b].first = std::min(lives_[b].first, time);
            lives_[b].last = std::max(lives_[b].last, time);
          }
        }
        ++time;
      }
    }
  }

  bool SameSize(int a, int b) const {
    const Buffer& x = program_.buffers[a];
    const Buffer& y = program_.buffers[b];
    return x.dtype == y.dtype && x.bytes() == y.bytes();
  }

  void Merge(int a, int b) {
    int root = Root(a), child = Root(b);
    if (lives_[child].placed) std::swap(root, child);
    lives_[root].first = std::min(lives_[root].first, lives_[child].first);
    lives_[root].last = std::max(lives_[root].last, lives_[child].last);
    parent_[child] = root;
  }

  // The area of the gradient that leaves is bound in the input-gradient only: the forward comes
  // before it, and it is sent while the weight-gradient runs.
  bool FitsLeaving(int placed, const Life& life) {
    return program_.buffers[Root(placed)].storage != Storage::kInputGradient ||
           (life.first >= start_[static_cast<int>(Part::kInputGradient)] &&
            life.last < start_[static_cast<int>(Part::kWeightGradient)]);
  }

  // A copy is a view unless both ends have a place already.
  void MergeCopy(const Instruction& copy) {
    if (copy.code != OpCode::kCopy) return;
    const int from = copy.inputs[0], to = copy.outputs[0];
    if (!SameSize(from, to) || (LifeOf(from).placed && LifeOf(to).placed)) return;
    if (LifeOf(to).placed && !FitsLeaving(to, LifeOf(from))) return;
    Merge(from, to);
  }

  void EraseViews(std::vector<Instruction>& part) {
    const auto is_view = [this](const Instruction& instruction) {
      return instruction.code == OpCode::kCopy &&
             Root(instruction.inputs[0]) == Root(instruction.outputs[0]);
    };
    part.erase(std::remove_if(part.begin(), part.end(), is_view), part.end());
  }

  void MergeInPlace() {
    int time = 0;
    for (Part part : kTimeline) {
      for (const Instruction& instruction : program_.part(part)) TakeOver(instruction, time++);
    }
  }

  // Lets the output have the memory of an input that nobody reads after this instruction.
  void TakeOver(const Instruction& instruction, int time) {
    // A product reads all of x before its last sum is done, and what it adds element by element.
    const bool adds = instruction.code == OpCode::kInt8ProductToCodes;
    const bool scatters = instruction.code == OpCode::kScatterSamples;
    if (!adds && !scatters && !TraitsOf(instruction.code).in_place) return;
    const int output = instruction.outputs[0];
    for (size_t i = adds       ? kAddedOperand
                    : scatters ? kScatterBase
                               : 0;
         i < instruction.inputs.size(); ++i) {
      const BufferIndex input = instruction.inputs[i];
      const Life& life = LifeOf(input);
      if (life.placed || life.last != time || !SameSize(input, output)) continue;
      if (adds && Root(input) == Root(instruction.inputs[0])) continue;
      if (LifeOf(output).placed && !FitsLeaving(output, life)) continue;
      Merge(input, output);
      return;
    }
  }

  void PlaceAll() {
    const int backward = start_[static_cast<int>(Part::kInputGradient)];
    const int evaluation = start_[static_cast<int>(Part::kForwardEval)];
    std::vector<int> roots;
    for (int b = 0; b < static_cast<int>(parent_.size()); ++b) {
      if (Root(b) == b && !lives_[b].placed && lives_[b].last >= 0) roots.push_back(b);
    }
    std::stable_sort(roots.begin(), roots.end(), [this](int a, int b) {
      return program_.buffers[a].bytes() > program_.buffers[b].bytes();
    });
    const auto crosses = [&](const Life& life) {
      return !one_in_flight_ && life.first < backward && life.last >= backward &&
             life.last < evaluation;
    };
    AreaPlan stash, scratch;
    for (int root : roots) {
      if (crosses(lives_[root])) PlaceIn(Storage::kStash, stash, root, kNoLimit);
    }
    const int64_t stash_bytes = stash.size_bytes();
    for (int root : roots) {
      if (crosses(lives_[root])) continue;
      if (lives_[root].last < evaluation && PlaceIn(Storage::kStash, stash, root, stash_bytes)) {
        continue;
      }
      PlaceIn(Storage::kScratch, scratch, root, kNoLimit);
    }
    program_.stash_bytes = AlignUp(stash_bytes);
    program_.scratch_bytes = AlignUp(scratch.size_bytes());
    for (int b = 0; b < static_cast<int>(parent_.size()); ++b) {
      program_.buffers[b].storage = program_.buffers[Root(b)].storage;
      program_.buffers[b].offset_bytes = program_.buffers[Root(b)].offset_bytes;
    }
  }

  bool PlaceIn(Storage storage, AreaPlan& area, int root, int64_t limit_bytes) {
    Buffer& buffer = program_.buffers[root];
    const int64_t offset =
        area.Place(buffer.bytes(), lives_[root].first, lives_[root].last, limit_bytes);
    if (offset == AreaPlan::kNoGap) return false;
    buffer.storage = storage;
    buffer.offset_bytes = offset;
    return true;
  }

  Program& program_;
  const bool one_in_flight_;
  std::vector<int> parent_;
  std::vector<Life> lives_;
  int start_[kPartCount] = {};
};

}  // namespace

int64_t AreaPlan::Place(int64_t bytes, int first, int last, int64_t limit_bytes) {
  const int64_t needed = AlignUp(bytes);
  int64_t free_from = 0, best = kNoGap, best_size = kNoLimit;
  for (const Block& block : blocks_) {
    if (block.last < first || block.first > last) continue;
    const int64_t gap = block.begin - free_from;
    if (gap >= needed && gap < best_size) {
      best = free_from;
      best_size = gap;
    }
    free_from = std::max(free_from, block.end);
  }
  if (best == kNoGap) best = free_from;
  if (best + bytes > limit_bytes) return kNoGap;
  const Block block = {best, best + needed, first, last};
  const auto by_begin = [](const Block& a, const Block& b) { return a.begin < b.begin; };
  blocks_.insert(std::upper_bound(blocks_.begin(), blocks_.end(), block, by_begin), block);
  size_bytes_ = std::max(size_bytes_, block.end);
  return best;
}

void PlanMemory(const std::vector<bool>& placed, bool one_in_flight, Program& program) {
  Planner(placed, one_in_flight, program).Run();
}

}  // namespace runnel
