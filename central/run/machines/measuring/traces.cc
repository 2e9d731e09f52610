#include "central/run/machines/measuring/traces.h"

#include <algorithm>

namespace runnel {

void ClockOffset::Add(const Heartbeat& heartbeat) {
  if (heartbeat.clock_ns == 0) return;
  offsets_ns_[static_cast<size_t>(count_++) % kKept] = heartbeat.arrived_ns - heartbeat.clock_ns;
}

std::optional<int64_t> ClockOffset::ns() const {
  if (count_ == 0) return std::nullopt;
  const auto kept = static_cast<std::ptrdiff_t>(std::min<int64_t>(count_, kKept));
  return *std::min_element(offsets_ns_.begin(), offsets_ns_.begin() + kept);
}

bool Traces::IsDone(int64_t now_ns) const {
  if (now_ns >= trace_->begin_ns + trace_->window_ns + kGraceNs) return true;
  return std::all_of(trace_->devices.begin(), trace_->devices.end(),
                     [](const DeviceTrace& device) { return device.answered; });
}

absl::Status Traces::Begin(int64_t now_ns, int64_t window_ns, int64_t step,
                           const ActivePlan& active, const Roster& roster, RunEffects& effects) {
  if (trace_.has_value() && !IsDone(now_ns))
    return absl::FailedPreconditionError("a trace is being taken already");
  if (active.plan.stages.empty())
    return absl::FailedPreconditionError("no plan holds yet: there is nothing to trace");
  rows_.clear();
  ++id_;
  trace_ = RunTrace{now_ns, window_ns, step, {}};
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    if (roster.lost()[i]) continue;
    const int device = static_cast<int>(i);
    DeviceTrace row;
    row.device = roster.name(device);
    if (const std::optional<size_t> stage = active.plan.StageOf(device)) {
      row.stage = static_cast<int>(*stage);
      row.first_layer = active.plan.stages[*stage].first_layer;
      row.last_layer = active.plan.stages[*stage].last_layer;
    }
    rows_[device] = trace_->devices.size();
    trace_->devices.push_back(std::move(row));
    effects.push_back(SendControl{roster.device(device).connection, TraceRequest{window_ns, id_}});
  }
  return absl::OkStatus();
}

void Traces::Add(int device, ConnectionId connection, const TraceReport& report) {
  const auto row = rows_.find(device);
  // Not the answer to an earlier one, which was held up.
  if (report.id != id_ || row == rows_.end()) return;
  DeviceTrace& trace = trace_->devices[row->second];
  const auto offset = offsets_.find(connection);
  const int64_t offset_ns = offset == offsets_.end() ? 0 : offset->second.ns().value_or(0);
  trace.answered = true;
  trace.left_out = report.left_out;
  trace.spans = report.spans;
  for (Span& span : trace.spans) span.begin_ns += offset_ns;
}

absl::StatusOr<std::optional<RunTrace>> Traces::Take(int64_t now_ns) const {
  if (!trace_.has_value()) return absl::NotFoundError("no trace was begun");
  if (!IsDone(now_ns)) return std::optional<RunTrace>();
  return trace_;
}

}  // namespace runnel
