#include "kernels/ir/co_scheduler/chain_schedule.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

absl::Status CheckChain(const InstructionChain& chain) {
  const size_t processors = chain.switches.size();
  const auto refuse = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("chain of instructions: ", what...));
  };
  if (processors == 0) return refuse("there is no processor");
  for (const std::vector<SwitchCost>& row : chain.switches) {
    if (row.size() != processors)
      return refuse(row.size(), " switches in a row, ", processors, " processors");
  }
  for (const std::vector<double>& row : chain.seconds) {
    if (row.size() != processors)
      return refuse(row.size(), " costs in a row, ", processors, " processors");
  }
  if (!chain.moved_bytes.empty() && chain.moved_bytes.size() != chain.seconds.size() + 1) {
    return refuse("bytes for ", chain.moved_bytes.size(), " switches, needs ",
                  chain.seconds.size() + 1);
  }
  for (const std::optional<int>& end : {chain.start, chain.end}) {
    if (end.has_value() && (*end < 0 || *end >= static_cast<int>(processors)))
      return refuse("starts or ends on processor ", *end, ", has ", processors);
  }
  return absl::OkStatus();
}

// The least time of the instructions so far if the last of them ran on this processor, and on which
// one the instruction before it then ran.
struct Best {
  double seconds = 0;
  int before = 0;
};

// Of all ways to `to`, which the instruction or the end would be on; `from` are the bests before.
Best BestBefore(const InstructionChain& chain, const std::vector<Best>& from, int to,
                int instruction) {
  Best best = {from[static_cast<size_t>(to)].seconds, to};
  for (int p = 0; p < static_cast<int>(from.size()); ++p) {
    if (p == to) continue;
    const double seconds =
        from[static_cast<size_t>(p)].seconds + chain.SwitchSeconds(p, to, instruction);
    if (seconds < best.seconds) best = {seconds, p};
  }
  return best;
}

std::vector<Best> BestsAtStart(const InstructionChain& chain) {
  std::vector<Best> bests(chain.switches.size());
  for (int p = 0; p < static_cast<int>(bests.size()); ++p) {
    if (chain.start.has_value() && *chain.start != p)
      bests[static_cast<size_t>(p)].seconds = kUnsupported;
  }
  return bests;
}

}  // namespace

double InstructionChain::SwitchSeconds(int from, int to, int instruction) const {
  if (from == to) return 0;
  const SwitchCost& cost = switches[static_cast<size_t>(from)][static_cast<size_t>(to)];
  if (moved_bytes.empty()) return cost.seconds;
  const auto bytes = static_cast<double>(moved_bytes[static_cast<size_t>(instruction)]);
  return cost.seconds + bytes * cost.seconds_per_byte;
}

absl::StatusOr<ChainSchedule> ScheduleChain(const InstructionChain& chain) {
  RUNNEL_RETURN_IF_ERROR(CheckChain(chain));
  const int count = chain.instructions();
  std::vector<std::vector<Best>> bests = {BestsAtStart(chain)};
  for (int i = 0; i < count; ++i) {
    const std::vector<double>& costs = chain.seconds[static_cast<size_t>(i)];
    if (std::all_of(costs.begin(), costs.end(), [](double cost) { return std::isinf(cost); })) {
      return absl::UnimplementedError(absl::StrCat("no processor has instruction ", i));
    }
    std::vector<Best> next(costs.size());
    for (int p = 0; p < static_cast<int>(costs.size()); ++p) {
      // Without a start every processor begins at 0, so no one is better reached by a switch.
      Best& best = next[static_cast<size_t>(p)];
      best = BestBefore(chain, bests.back(), p, i);
      best.seconds += costs[static_cast<size_t>(p)];
    }
    bests.push_back(std::move(next));
  }
  ChainSchedule schedule;
  int at = 0;
  schedule.seconds = kUnsupported;
  for (int p = 0; p < static_cast<int>(chain.switches.size()); ++p) {
    const double back = chain.end.has_value() ? chain.SwitchSeconds(p, *chain.end, count) : 0;
    const double seconds = bests.back()[static_cast<size_t>(p)].seconds + back;
    if (seconds >= schedule.seconds) continue;
    schedule.seconds = seconds;
    at = p;
  }
  schedule.processors.resize(static_cast<size_t>(count));
  for (int i = count; i > 0; --i) {
    schedule.processors[static_cast<size_t>(i - 1)] = at;
    at = bests[static_cast<size_t>(i)][static_cast<size_t>(at)].before;
  }
  return schedule;
}

}  // namespace runnel
