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
  if (device.barred) return "failed";
  const std::optional<size_t> stage = active.plan.StageOf(number);
  if (!stage.has_value()) return "waits";
  const StagePlan& plan = active.plan.stages[*stage];
  return absl::StrCat("trains layers ", plan.first_layer, " to ", plan.last_layer);
}

struct MemoryLimit {
  int64_t bytes = 0;      // 0: not known
  std::string memory_of;  // DeviceFacts::memory_of
};

// sharing: so many workers have the memory together.
MemoryLimit LimitOf(const Roster& roster, int number, int64_t sharing) {
  const WorkerHello& hello = roster.device(number).hello;
  const std::vector<std::string> backends = BackendFamilies(roster.BackendOf(number));
  // Each processor beside the host's has copies of the state and values of a stage, and each
  // segment its operands: at most about as much again for each of them.
  const int64_t copies = backends.size() > 1 ? static_cast<int64_t>(backends.size()) : 0;
  MemoryLimit limit = {hello.memory_bytes / sharing / (1 + copies), ""};
  for (const std::string& backend : backends) {
    const ProcessorFacts* processor = FindProcessor(hello.processor_list, backend);
    if (processor == nullptr || processor->memory_bytes == 0) continue;
    // All data of the stage lies in the processor's memory.
    const int64_t bytes = std::max<int64_t>(1, processor->memory_bytes / sharing);
    if (limit.bytes > 0 && limit.bytes <= bytes) continue;
    limit = {bytes, absl::StrCat("the memory of its ", backend, " device")};
  }
  return limit;
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
    const MemoryLimit limit = LimitOf(roster, static_cast<int>(i), sharing);
    facts.push_back({device.hello.name, device.processor_share, roster.lost()[i] || !device.stays(),
                     device.local, i < paths.size() ? paths[i] : PathFigures(), device.costs,
                     limit.bytes, limit.memory_of});
  }
  return facts;
}

PlanDecided DecidedOn(const Roster& roster, int64_t step, Plan plan,
                      const std::vector<DeviceTimes>& times) {
  PlanDecided decided{step, std::move(plan), {}};
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    const Device& device = roster.devices()[i];
    JournalDevice row{device.hello.name, roster.ClassOf(static_cast<int>(i))};
    if (i < times.size()) {
      row.times = times[i];
      row.processor_share = device.processor_share;
      row.costs = device.costs;
      row.on_host = device.local;
    }
    row.backend_options = device.hello.backend_options;
    decided.devices.push_back(std::move(row));
  }
  return decided;
}

MemberList MembersOf(const Roster& roster, const ActivePlan& active, int64_t step, bool paused) {
  MemberList list{{}, step, paused};
  for (size_t i = 0; i < roster.devices().size(); ++i) {
    const Device& device = roster.devices()[i];
    list.members.push_back(
        {device.hello.name, StateOf(roster, active, static_cast<int>(i)), device.hello.data_address,
         roster.ClassOf(static_cast<int>(i)), device.hello.memory_bytes, device.local, false,
         device.hello.processor_list, device.hello.backend_options, device.hello.limits});
  }
  return list;
}

std::vector<std::string> ProcessorLines(const Roster& roster, const Plan& plan, bool all) {
  std::vector<std::string> lines;
  for (const auto [i, number] : plan.seats()) {
    const StagePlan& stage = plan.stages[i];
    const Device& device = roster.device(number);
    const std::string& backend = roster.BackendOf(number);
    const bool is_cpu = backend == "auto" || backend == "cpu";
    if (!all && is_cpu && device.backend_choice.empty()) continue;
    std::string line = absl::StrCat(device.hello.name, ": layers ", stage.first_layer, " to ",
                                    stage.last_layer, " on ", backend == "auto" ? "cpu" : backend);
    if (roster.IsBackendNamed(number)) {
      absl::StrAppend(&line, ", as --backend says");
    } else if (!device.backend_choice.empty()) {
      absl::StrAppend(&line, ": ", device.backend_choice);
    } else {
      absl::StrAppend(&line, ": nothing was measured beside it");
    }
    for (const std::string& one : BackendFamilies(backend)) {
      const ProcessorFacts* processor = FindProcessor(device.hello.processor_list, one);
      if (processor == nullptr || !processor->is_emulated) continue;
      absl::StrAppend(&line, "; ", one, " is emulated: who runs what goes by counts, the stage's ",
                      "time is the emulator's and no device's");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace runnel
