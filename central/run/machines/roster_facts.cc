#include "central/run/machines/roster_facts.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

std::string StateOf(const Roster& roster, const ActivePlan& active, int number) {
  const Device& device = roster.device(number);
  if (roster.lost()[static_cast<size_t>(number)]) return device.released ? "left" : "gone";
  if (device.leaving) return "leaves";
  const std::optional<size_t> stage = active.StageOf(number);
  if (!stage.has_value()) return "waits";
  const StagePlan& plan = active.plan.stages[*stage];
  return absl::StrCat("trains layers ", plan.first_layer, " to ", plan.last_layer);
}

}  // namespace

std::vector<DeviceFacts> FactsOf(const Roster& roster, const std::vector<PathFigures>& paths) {
  std::vector<DeviceFacts> facts;
  const std::vector<Device>& devices = roster.devices();
  int64_t locals = 0;
  for (size_t i = 0; i < devices.size(); ++i)
    locals += devices[i].local && !roster.lost()[i] ? 1 : 0;
  for (size_t i = 0; i < devices.size(); ++i) {
    const Device& device = devices[i];
    // Local workers are on one host and have its memory together.
    const int64_t sharing = device.local ? std::max<int64_t>(locals, 1) : 1;
    // Each processor beside the host's has copies of the state and values of a stage, and each
    // segment its operands: at most about as much again for each of them.
    const int64_t processors = roster.ProcessorsOf(static_cast<int>(i));
    const int64_t copies = processors > 1 ? processors : 0;
    facts.push_back({device.hello.name, device.processor_share, roster.lost()[i] || device.leaving,
                     device.local, i < paths.size() ? paths[i] : PathFigures(), device.costs,
                     device.hello.memory_bytes / sharing / (1 + copies)});
  }
  return facts;
}

PlanDecided DecidedOn(const Roster& roster, int64_t step, Plan plan,
                      const std::vector<DeviceTimes>& times) {
  PlanDecided decided{step, std::move(plan), {}};
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    const Device& device = roster.devices()[i];
    JournalDevice row{device.hello.name, device.hello.numerics_class};
    if (i < times.size()) {
      row.times = times[i];
      row.processor_share = device.processor_share;
      row.costs = device.costs;
    }
    decided.devices.push_back(std::move(row));
  }
  return decided;
}

MemberList MembersOf(const Roster& roster, const ActivePlan& active, int64_t step, bool paused) {
  MemberList list{{}, step, paused};
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    const Device& device = roster.devices()[i];
    list.members.push_back({device.hello.name, StateOf(roster, active, static_cast<int>(i)),
                            device.hello.data_address, device.hello.numerics_class,
                            device.hello.memory_bytes, device.local});
  }
  return list;
}

}  // namespace runnel
