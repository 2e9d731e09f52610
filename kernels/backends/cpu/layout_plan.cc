#include "kernels/backends/cpu/layout_plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "proto/base/status_macros.h"

namespace runnel::cpu {
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
  Planner(const Program& program, absl::FunctionRef<const KernelRow*(OpCode)> find)
      : program_(program), find_(find) {}

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

  // False where both layouts are the same bytes.
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
      PlannedInstruction planned;
      planned.instruction = &instruction;
      planned.kernel = find_(instruction.code);
      if (planned.kernel == nullptr) {
        return absl::UnimplementedError(absl::StrCat("backend cpu has no ", Name(instruction.code),
                                                     " (layer ", instruction.layer, ", op ",
                                                     instruction.op, ")"));
      }
      const LayoutRule rule = planned.kernel->layout;
      planned.channels_last = WantsChannelsLast(instruction, rule);
      const bool reads_last = planned.channels_last || rule == LayoutRule::kFromChannelsLast;
      const bool writes_last = planned.channels_last || rule == LayoutRule::kToChannelsLast;
      int64_t workspace = 0;
      for (BufferIndex i : instruction.inputs) {
        planned.inputs.push_back(InputTurn(program_.buffers[i], reads_last, &workspace));
      }
      for (BufferIndex i : instruction.outputs) {
        planned.outputs.push_back(OutputTurn(program_.buffers[i], writes_last, &workspace));
      }
      plan_.workspace_bytes = std::max(plan_.workspace_bytes, workspace);
      plan_.parts[static_cast<int>(part)].push_back(std::move(planned));
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
      if (!IsActivation(buffer.storage)) continue;
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
    if (buffer.scaled) {
      turn.tail_offset = buffer.bytes() - static_cast<int64_t>(sizeof(ScaleTail));
    }
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
  absl::FunctionRef<const KernelRow*(OpCode)> find_;
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

void TransposeFloats(const Machine& machine, const float* in, int64_t rows, int64_t columns,
                     float* out) {
  machine.fp32->transpose(in, rows, columns, columns, out, rows);
}

void TurnSample(const Machine& machine, const Turn& turn, int64_t sample, const std::byte* source,
                std::byte* target) {
  const int64_t size = turn.channels * turn.positions;
  const int64_t rows = turn.way == Turn::Way::kToChannelsLast ? turn.channels : turn.positions;
  const int64_t at = sample * size * turn.element_bytes;
  source += at;
  target += at;
  switch (turn.element_bytes) {
    case 1:
      return Transpose(reinterpret_cast<const int8_t*>(source), rows, size / rows,
                       reinterpret_cast<int8_t*>(target));
    case 2:
      return Transpose(reinterpret_cast<const int16_t*>(source), rows, size / rows,
                       reinterpret_cast<int16_t*>(target));
    case 8:
      return Transpose(reinterpret_cast<const int64_t*>(source), rows, size / rows,
                       reinterpret_cast<int64_t*>(target));
    default:
      return TransposeFloats(machine, reinterpret_cast<const float*>(source), rows, size / rows,
                             reinterpret_cast<float*>(target));
  }
}

}  // namespace

bool PlannedInstruction::turns() const {
  const auto turned = [](const Turn& turn) { return turn.way != Turn::Way::kNone; };
  return std::any_of(inputs.begin(), inputs.end(), turned) ||
         std::any_of(outputs.begin(), outputs.end(), turned);
}

absl::StatusOr<LayoutPlan> PlanLayout(const Program& program,
                                      absl::FunctionRef<const KernelRow*(OpCode)> find) {
  return Planner(program, find).Run();
}

void RunTurn(const Machine& machine, const Turn& turn, const std::byte* source, std::byte* target) {
  ParallelFor(machine, turn.samples, [&](int, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) TurnSample(machine, turn, n, source, target);
  });
  if (turn.tail_offset > 0) {
    std::memcpy(target + turn.tail_offset, source + turn.tail_offset, sizeof(ScaleTail));
  }
}

}  // namespace runnel::cpu
