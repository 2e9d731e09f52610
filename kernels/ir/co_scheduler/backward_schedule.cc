#include "kernels/ir/co_scheduler/backward_schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace runnel {
namespace {

constexpr auto kInputGradients = static_cast<size_t>(Part::kInputGradient);
constexpr auto kWeightGradients = static_cast<size_t>(Part::kWeightGradient);

// By instruction of kWeightGradient: an item is what lies between a value's writer and its readers
// there, so that no value of theirs crosses to another processor.
std::vector<int> FindItems(const ProgramFlow& flow, int instructions) {
  std::vector<int> last(static_cast<size_t>(instructions));  // that must be with this one
  for (int i = 0; i < instructions; ++i) last[static_cast<size_t>(i)] = i;
  for (const FlowValue& value : flow.values) {
    if (value.part != Part::kWeightGradient || value.writer < 0) continue;
    int& end = last[static_cast<size_t>(value.writer)];
    for (const FlowValue::Reader& reader : value.readers) {
      if (reader.part == Part::kWeightGradient) end = std::max(end, reader.instruction);
    }
  }
  std::vector<int> items(static_cast<size_t>(instructions));
  int item = -1, end = -1;
  for (int i = 0; i < instructions; ++i) {
    if (i > end) ++item;
    end = std::max(end, last[static_cast<size_t>(i)]);
    items[static_cast<size_t>(i)] = item;
  }
  return items;
}

double EndOf(const ScheduledInstruction& one) {
  return one.begin_seconds + one.switch_seconds + one.seconds;
}

// When what the instruction of kInputGradient wrote can be read by others.
double ReadyAfter(const std::vector<ScheduledInstruction>& chain, int instruction) {
  auto at = static_cast<size_t>(instruction);
  while (chain[at].processor != 0 && at + 1 < chain.size() &&
         chain[at + 1].processor == chain[at].processor)
    ++at;
  return EndOf(chain[at]);
}

// Runs of one processor, cut behind these instructions.
std::vector<int> CutRuns(const std::vector<ScheduledInstruction>& chain,
                         const std::set<int>& cuts) {
  std::vector<int> groups;
  int group = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    const bool is_cut = i > 0 && (chain[i].processor != chain[i - 1].processor ||
                                  cuts.contains(static_cast<int>(i) - 1));
    if (is_cut) ++group;
    groups.push_back(group);
  }
  return groups;
}

// The processors of items: that of one of its instructions that can run all of them, else the
// fastest. -1: there is none.
std::vector<int> ItemProcessors(const BackwardLanes& backward, const std::vector<int>& start) {
  std::vector<int> processors;
  for (const GradientItem& item : backward.lanes.items) {
    const auto least = std::min_element(item.seconds.begin(), item.seconds.end());
    processors.push_back(*least < kUnsupported ? static_cast<int>(least - item.seconds.begin())
                                               : -1);
  }
  for (size_t i = start.size(); i-- > 0;) {
    const auto item = static_cast<size_t>(backward.items[i]);
    if (backward.lanes.items[item].seconds[static_cast<size_t>(start[i])] < kUnsupported)
      processors[item] = start[i];
  }
  return processors;
}

// Instructions of the host behind which other processors can go on: of each group that begins
// before all input-gradients are done the last one that it waits for.
std::set<int> CutsFor(const BackwardLanes& backward, const GradientPlacement& placed) {
  struct Group {
    double begin_seconds = 0;
    int waits_for = -1;
  };
  std::map<std::pair<int, int>, Group> groups;  // by processor and number
  for (size_t i = 0; i < placed.processors.size(); ++i) {
    if (placed.processors[i] == 0) continue;
    const auto [found, is_new] = groups.try_emplace({placed.processors[i], placed.groups[i]});
    if (is_new) found->second.begin_seconds = placed.begin_seconds[i];
    found->second.waits_for = std::max(found->second.waits_for, backward.waits_for[i]);
  }
  std::set<int> cuts;
  for (const auto& [key, group] : groups) {
    if (group.waits_for >= 0 && group.begin_seconds < backward.lanes.least_end_seconds)
      cuts.insert(group.waits_for);
  }
  return cuts;
}

}  // namespace

BackwardLanes MakeLanes(const ProgramFlow& flow, const InstructionChain& chain,
                        const ProgramSchedule& schedule) {
  const std::vector<ScheduledInstruction>& before = schedule.parts[kInputGradients];
  const size_t processors = chain.switches.size();
  BackwardLanes backward;
  backward.items = FindItems(flow, chain.instructions());
  GradientLanes& lanes = backward.lanes;
  lanes.least_end_seconds = schedule.PartSeconds(Part::kInputGradient);
  lanes.free_seconds.resize(processors);
  lanes.group_seconds.resize(processors);
  for (const ScheduledInstruction& one : before)
    lanes.free_seconds[static_cast<size_t>(one.processor)] = EndOf(one);
  lanes.free_seconds[0] = lanes.least_end_seconds;
  for (size_t p = 1; p < processors; ++p)
    lanes.group_seconds[p] = chain.switches[0][p].seconds + chain.switches[p][0].seconds;
  const int count = backward.items.empty() ? 0 : backward.items.back() + 1;
  lanes.items.resize(static_cast<size_t>(count), {0, std::vector<double>(processors)});
  backward.waits_for.resize(static_cast<size_t>(count), -1);
  for (int i = 0; i < chain.instructions(); ++i) {
    const auto number = static_cast<size_t>(backward.items[static_cast<size_t>(i)]);
    GradientItem& item = lanes.items[number];
    for (size_t p = 0; p < processors; ++p)
      item.seconds[p] += chain.seconds[static_cast<size_t>(i)][p];
    for (const int input : flow.of(Part::kWeightGradient, i).inputs) {
      if (input == kNoValue) continue;
      const FlowValue& value = flow.values[static_cast<size_t>(input)];
      if (value.part != Part::kInputGradient || value.writer < 0) continue;
      item.ready_seconds = std::max(item.ready_seconds, ReadyAfter(before, value.writer));
      if (before[static_cast<size_t>(value.writer)].processor == 0)
        backward.waits_for[number] = std::max(backward.waits_for[number], value.writer);
    }
  }
  return backward;
}

void ScheduleWeightGradients(const ProgramFlow& flow, const InstructionChain& chain,
                             const std::vector<int>& start, ProgramSchedule& schedule) {
  const BackwardLanes backward = MakeLanes(flow, chain, schedule);
  const std::vector<int> first = ItemProcessors(backward, start);
  if (std::find(first.begin(), first.end(), -1) != first.end())
    return FillCosts(chain, start, Part::kWeightGradient, schedule);
  const GradientPlacement placed = PlaceGradients(backward.lanes, first);
  const auto processors = static_cast<int>(chain.switches.size());
  const auto group_of = [&](size_t item) {
    return placed.groups[item] * processors + placed.processors[item];
  };
  std::set<int> begun;
  std::vector<double> within(placed.processors.size());  // of an item's instructions so far
  for (size_t i = 0; i < backward.items.size(); ++i) {
    const auto item = static_cast<size_t>(backward.items[i]);
    ScheduledInstruction one;
    one.processor = placed.processors[item];
    one.seconds = chain.seconds[i][static_cast<size_t>(one.processor)];
    one.begin_seconds =
        placed.begin_seconds[item] + within[item] - backward.lanes.least_end_seconds;
    if (one.processor > 0 && begun.insert(group_of(item)).second)
      one.switch_seconds = backward.lanes.group_seconds[static_cast<size_t>(one.processor)];
    within[item] += one.switch_seconds + one.seconds;
    schedule.parts[kWeightGradients].push_back(one);
    schedule.grouping[kWeightGradients].push_back(group_of(item));
  }
  schedule.grouping[kInputGradients] =
      CutRuns(schedule.parts[kInputGradients], CutsFor(backward, placed));
}

}  // namespace runnel
