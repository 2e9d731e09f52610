#include "kernels/backends/host/live_samples.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/ir/gate_options.h"
#include "kernels/ir/work_tally.h"
#include "proto/base/status_macros.h"

namespace runnel::host {
namespace {

const float* ChoiceAt(const Program& program, BufferIndex gate, const Bindings& bindings) {
  const Buffer& buffer = program.buffers[static_cast<size_t>(gate)];
  return reinterpret_cast<const float*>(bindings[buffer.storage] + buffer.offset_bytes);
}

// One behind the last step of the group that begins with `first`.
size_t EndOfGroup(absl::Span<const LiveSamples::Step> steps, size_t first) {
  const Instruction& head = *steps[first].front();
  size_t end = first + 1;
  while (head.gate != kNoGate && end < steps.size() && steps[end].front()->gate == head.gate &&
         RunsByOption(*steps[end].front()) == RunsByOption(head))
    ++end;
  return end;
}

bool Overlap(const Buffer& a, const Buffer& b) {
  return a.storage == b.storage && a.offset_bytes < b.offset_bytes + b.bytes() &&
         b.offset_bytes < a.offset_bytes + a.bytes();
}

// All instructions of a step run by option, or none does.
absl::Status CheckAlike(const LiveSamples::Step& step) {
  for (const Instruction* instruction : step) {
    if (RunsByOption(*instruction) == RunsByOption(*step.front())) continue;
    return absl::InternalError(absl::StrCat(
        "a step has ", Name(step.front()->code), " and ", Name(instruction->code), " of layer ",
        instruction->layer, ", of which one runs for each option of a gate"));
  }
  return absl::OkStatus();
}

// Values that share memory with one that the steps write.
absl::Status CheckApart(const Program& program, absl::Span<const LiveSamples::Step> steps) {
  std::set<BufferIndex> values, written;
  for (const LiveSamples::Step& step : steps) {
    for (const Instruction* instruction : step) {
      values.insert(instruction->inputs.begin(), instruction->inputs.end());
      values.insert(instruction->outputs.begin(), instruction->outputs.end());
      written.insert(instruction->outputs.begin(), instruction->outputs.end());
    }
  }
  const Instruction& first = *steps.front().front();
  for (const BufferIndex a : written) {
    for (const BufferIndex b : values) {
      if (a == b || !Overlap(program.buffers[static_cast<size_t>(a)],
                             program.buffers[static_cast<size_t>(b)]))
        continue;
      return absl::InternalError(absl::StrCat(
          "values ", a, " and ", b, " of instructions that run for each option of a gate, from ",
          Name(first.code), " of layer ", first.layer, ", op ", first.op, " on, share memory"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LiveSamples::Check(const Program& program, absl::Span<const Step> steps) {
  const std::vector<const OpSpec*> gates = GatesByChoice(program);
  for (size_t at = 0, end = 0; at < steps.size(); at = end) {
    end = EndOfGroup(steps, at);
    const Instruction& head = *steps[at].front();
    if (head.gate == kNoGate || LevelsOf(*gates[static_cast<size_t>(head.gate)]) < 2) continue;
    for (const Step& step : steps.subspan(at, end - at)) RUNNEL_RETURN_IF_ERROR(CheckAlike(step));
    if (RunsByOption(head))
      RUNNEL_RETURN_IF_ERROR(CheckApart(program, steps.subspan(at, end - at)));
  }
  return absl::OkStatus();
}

LiveSamples::LiveSamples(const Program& program) : program_(program) {
  has_gates_ = HasGates(program);
  if (!has_gates_) return;
  live_ = program;
  gates_.resize(program.buffers.size());
  const std::vector<const OpSpec*> gates = GatesByChoice(program);
  for (size_t i = 0; i < gates.size(); ++i)
    if (gates[i] != nullptr) gates_[i].spec = *gates[i];
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const int32_t by = program.buffers[i].packed_by;
    if (by != kNoGate)
      gates_[static_cast<size_t>(by)].packed.push_back(static_cast<BufferIndex>(i));
  }
}

absl::Status LiveSamples::Run(absl::Span<const Step> steps, const StepContext& context,
                              const Bindings& bindings, RunStep run) {
  size_t at = 0;
  while (at < steps.size()) {
    const Instruction& head = *steps[at].front();
    if (head.gate == kNoGate) {
      RUNNEL_RETURN_IF_ERROR(run(at, context));
      Count(steps[at], context);
      ++at;
      continue;
    }
    const size_t end = EndOfGroup(steps, at);
    RUNNEL_RETURN_IF_ERROR(RunGroup(steps.subspan(at, end - at), at, context, bindings, run));
    at = end;
  }
  return absl::OkStatus();
}

absl::Status LiveSamples::RunGroup(absl::Span<const Step> steps, size_t first,
                                   const StepContext& context, const Bindings& bindings,
                                   RunStep run) {
  const Instruction& head = *steps.front().front();
  const Gate& gate = gates_[static_cast<size_t>(head.gate)];
  const int64_t samples = program_.batch;
  std::vector<OptionRows> rows =
      RowsByOption(gate.spec, samples, program_.buffers[static_cast<size_t>(head.gate)].shape[1],
                   ChoiceAt(program_, head.gate, bindings));
  rows.erase(std::remove_if(
                 rows.begin(), rows.end(),
                 [&](const OptionRows& r) { return r.count == 0 || Skips(gate.spec, r.option); }),
             rows.end());
  if (rows.empty()) {
    if (context.accumulate) return absl::OkStatus();
    for (const Step& step : steps) ZeroGradients(step, bindings);
    return absl::OkStatus();
  }
  absl::Status status;
  if (RunsByOption(head)) {
    StepContext of_option = context;
    for (const OptionRows& one : rows) {
      if (status.ok()) status = RunOn(one, steps, first, of_option, run);
      of_option.accumulate = true;
    }
  } else {
    const OptionRows all = {rows.front().option, 0, rows.back().first + rows.back().count};
    status = RunOn(all, steps, first, context, run);
  }
  Focus(gate, 0, samples);
  return status;
}

absl::Status LiveSamples::RunOn(const OptionRows& rows, absl::Span<const Step> steps, size_t first,
                                const StepContext& context, RunStep run) {
  const Gate& gate = gates_[static_cast<size_t>(steps.front().front()->gate)];
  Focus(gate, rows.first, rows.count);
  StepContext of_option = context;
  of_option.grid_bits = BitsOfOption(gate.spec, rows.option);
  for (size_t i = 0; i < steps.size(); ++i) {
    RUNNEL_RETURN_IF_ERROR(run(first + i, of_option));
    Count(steps[i], of_option);
  }
  return absl::OkStatus();
}

void LiveSamples::Focus(const Gate& gate, int64_t first, int64_t count) {
  for (BufferIndex index : gate.packed) {
    const Buffer& whole = program_.buffers[static_cast<size_t>(index)];
    Buffer& buffer = live_.buffers[static_cast<size_t>(index)];
    std::vector<int64_t> dims(whole.shape.dims().begin(), whole.shape.dims().end());
    dims[0] = count;
    buffer.shape = *Shape::Create(dims);
    const int64_t row = whole.shape.elements() / whole.shape[0];
    buffer.offset_bytes =
        whole.offset_bytes + first * row * static_cast<int64_t>(SizeOf(whole.dtype));
  }
}

void LiveSamples::ZeroGradients(const Step& step, const Bindings& bindings) const {
  for (const Instruction* instruction : step) {
    if (TraitsOf(instruction->code).part != Part::kWeightGradient) continue;
    for (BufferIndex index : instruction->outputs) {
      const Buffer& buffer = program_.buffers[static_cast<size_t>(index)];
      std::memset(bindings[buffer.storage] + buffer.offset_bytes, 0,
                  static_cast<size_t>(buffer.bytes()));
    }
  }
}

void LiveSamples::Count(const Step& step, const StepContext& context) const {
  if (context.work == nullptr) return;
  for (const Instruction* instruction : step) {
    const int64_t macs = MultiplyAdds(live_, *instruction);
    if (macs > 0) context.work->AddProduct(*instruction, context.grid_bits, macs);
  }
}

}  // namespace runnel::host
