#include "kernels/torch/layout_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel::torch_kernels {
namespace {

// Memory that enters or leaves a stage, and state: row-major by contract.
bool IsPrivate(Storage storage) {
  return storage == Storage::kStash || storage == Storage::kScratch;
}
bool IsActivation(Storage storage) {
  return IsPrivate(storage) || storage == Storage::kInput || storage == Storage::kOutput ||
         storage == Storage::kInputGradient || storage == Storage::kOutputGradient;
}

// Follows the contents of the private memory through the parts of a program.
class Planner {
 public:
  explicit Planner(const Program& program) : program_(program) {}

  absl::StatusOr<LayoutPlan> Run() {
    RUNNEL_RETURN_IF_ERROR(PlanPart(Part::kForward));
    RUNNEL_RETURN_IF_ERROR(PlanPart(Part::kInputGradient));
    RUNNEL_RETURN_IF_ERROR(PlanPart(Part::kWeightGradient));
    contents_.clear();
    RUNNEL_RETURN_IF_ERROR(PlanPart(Part::kForwardEval));
    RUNNEL_RETURN_IF_ERROR(PlanPart(Part::kUpdate));
    return std::move(plan_);
  }

 private:
  // Channels and positions of what lies channels-last at a place; absent: row-major.
  using Plane = std::pair<int64_t, int64_t>;

  // Null where both layouts are the same bytes.
  static bool HasPlane(const Buffer& buffer, Plane* plane) {
    if (!IsActivation(buffer.storage) || buffer.shape.rank() < 3) return false;
    *plane = {buffer.shape[1], ImageOf(buffer.shape).positions()};
    return plane->first > 1 && plane->second > 1;
  }
  const Plane* ContentsOf(const Buffer& buffer) const {
    const auto it = contents_.find({buffer.storage, buffer.offset_bytes});
    return it == contents_.end() ? nullptr : &it->second;
  }

  absl::Status PlanPart(Part part) {
    for (const Instruction& instruction : program_.part(part)) {
      Step step;
      step.instruction = &instruction;
      step.kernel = FindKernel(instruction.code);
      if (step.kernel == nullptr) {
        return absl::UnimplementedError(
            absl::StrCat("backend torch has no ", Name(instruction.code), " (layer ",
                         instruction.layer, ", op ", instruction.op, ")"));
      }
      step.channels_last = WantsChannelsLast(instruction, step.kernel->layout);
      int64_t workspace = 0;
      for (BufferIndex i : instruction.inputs) {
        step.inputs.push_back(InputTurn(program_.buffers[i], step.channels_last, &workspace));
      }
      for (BufferIndex i : instruction.outputs) {
        step.outputs.push_back(OutputTurn(program_.buffers[i], step.channels_last, &workspace));
      }
      plan_.workspace_bytes = std::max(plan_.workspace_bytes, workspace);
      plan_.parts[static_cast<int>(part)].push_back(std::move(step));
    }
    return absl::OkStatus();
  }

  bool WantsChannelsLast(const Instruction& instruction, LayoutRule rule) const {
    if (rule != LayoutRule::kSame) return rule == LayoutRule::kChannelsLast;
    // Any layout will do: the one that is there, if all operands can have it.
    bool some = false;
    const Shape& shape = program_.buffers[instruction.outputs[0]].shape;
    for (BufferIndex i : instruction.inputs) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.shape != shape) return false;
      Plane plane;
      const Plane* contents = ContentsOf(buffer);
      some = some || (HasPlane(buffer, &plane) && contents != nullptr && *contents == plane);
    }
    return some;
  }

  static Turn MakeTurn(Turn::Way way, const Buffer& buffer, const Plane& plane,
                       int64_t* workspace) {
    Turn turn;
    turn.way = way;
    turn.channels = plane.first;
    turn.positions = plane.second;
    turn.samples = buffer.shape.elements() / (plane.first * plane.second);
    turn.element_bytes = static_cast<int>(SizeOf(buffer.dtype));
    turn.workspace_offset = *workspace;
    *workspace += (buffer.bytes() + 63) / 64 * 64;
    return turn;
  }

  Turn InputTurn(const Buffer& buffer, bool channels_last, int64_t* workspace) const {
    if (!IsActivation(buffer.storage)) return {};
    const Plane* contents = ContentsOf(buffer);
    Plane plane;
    const bool wants = channels_last && HasPlane(buffer, &plane);
    if (wants == (contents != nullptr)) return {};
    return wants ? MakeTurn(Turn::Way::kToChannelsLast, buffer, plane, workspace)
                 : MakeTurn(Turn::Way::kToRowMajor, buffer, *contents, workspace);
  }

  Turn OutputTurn(const Buffer& buffer, bool channels_last, int64_t* workspace) {
    Plane plane;
    const bool makes = channels_last && HasPlane(buffer, &plane);
    if (makes && !IsPrivate(buffer.storage)) {
      return MakeTurn(Turn::Way::kToRowMajor, buffer, plane, workspace);
    }
    if (makes) {
      contents_[{buffer.storage, buffer.offset_bytes}] = plane;
    } else {
      contents_.erase({buffer.storage, buffer.offset_bytes});
    }
    return {};
  }

  const Program& program_;
  LayoutPlan plan_;
  std::map<std::pair<Storage, int64_t>, Plane> contents_;
};

// out (columns, rows) = in (rows, columns), in blocks that stay in the first-level cache.
template <typename T>
void Transpose(const T* in, int64_t rows, int64_t columns, T* out) {
  constexpr int64_t kBlock = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    const int64_t r1 = std::min(rows, r0 + kBlock);
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const int64_t c1 = std::min(columns, c0 + kBlock);
      for (int64_t c = c0; c < c1; ++c) {
        for (int64_t r = r0; r < r1; ++r) out[c * rows + r] = in[r * columns + c];
      }
    }
  }
}

template <typename T>
void TurnSamples(const Turn& turn, const std::byte* source, std::byte* target) {
  const int64_t size = turn.channels * turn.positions;
  const bool to_last = turn.way == Turn::Way::kToChannelsLast;
  const int64_t rows = to_last ? turn.channels : turn.positions;
  ParallelFor(turn.samples, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      Transpose(reinterpret_cast<const T*>(source) + n * size, rows, size / rows,
                reinterpret_cast<T*>(target) + n * size);
    }
  });
}

}  // namespace

absl::StatusOr<LayoutPlan> PlanLayout(const Program& program) { return Planner(program).Run(); }

void RunTurn(const Turn& turn, const std::byte* source, std::byte* target) {
  if (turn.element_bytes == 1) {
    TurnSamples<uint8_t>(turn, source, target);
  } else {
    TurnSamples<float>(turn, source, target);
  }
}

}  // namespace runnel::torch_kernels
