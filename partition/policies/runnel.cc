#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "partition/policies/policies.h"
#include "partition/policies/runnel_search.h"
#include "proto/base/status_macros.h"

namespace runnel::policies {
namespace {

constexpr int kMaxPermutedDevices = 6;
constexpr size_t kSimulatedCandidates = 16;
// Periods nearer than this count as equal where exactness or staleness decide.
constexpr double kAlike = 1e-4;

struct Candidate {
  Placement placement;
  double charged = 0;  // ChargedPeriod by the closed form, later by simulation
};

void AddOrders(const PipelineModel& model, int layers, std::vector<int>& order,
               std::vector<bool>& used, std::vector<std::vector<int>>& orders) {
  orders.push_back(order);
  if (static_cast<int>(order.size()) == layers) return;
  for (size_t device = 1; device < model.devices.size(); ++device) {
    if (used[device]) continue;
    used[device] = true;
    order.push_back(static_cast<int>(device));
    AddOrders(model, layers, order, used, orders);
    order.pop_back();
    used[device] = false;
  }
}

// Orders of subsets of the devices, device 0 first: all of them, or for many devices the prefixes
// of the given order and of the order by speed.
std::vector<std::vector<int>> Orders(const PipelineModel& model) {
  const int devices = static_cast<int>(model.devices.size());
  const int layers = model.layers();
  std::vector<std::vector<int>> orders;
  if (devices <= kMaxPermutedDevices) {
    std::vector<int> order = {0};
    std::vector<bool> used(devices, false);
    AddOrders(model, layers, order, used, orders);
    return orders;
  }
  std::vector<int> given(devices);
  std::iota(given.begin(), given.end(), 0);
  std::vector<int> fastest = given;
  std::stable_sort(fastest.begin() + 1, fastest.end(), [&](int a, int b) {
    return model.compute->StageSeconds(a, 0, layers - 1) <
           model.compute->StageSeconds(b, 0, layers - 1);
  });
  for (int count = 1; count <= std::min(devices, layers); ++count) {
    orders.emplace_back(given.begin(), given.begin() + count);
    orders.emplace_back(fastest.begin(), fastest.begin() + count);
  }
  return orders;
}

// The best of one order and pair of codecs over all limits of caps, by the closed form.
std::optional<Candidate> BestOfOrder(const PipelineModel& model, const OrderSearch& search,
                                     double lowest, int64_t max_cap) {
  std::optional<Candidate> best;
  const int64_t stages = static_cast<int64_t>(search.order().size());
  for (int64_t cap = std::min(stages, max_cap); cap <= max_cap; ++cap) {
    const std::optional<OrderSearch::Found> found = search.Best(cap);
    if (!found.has_value()) continue;
    const double charged = ChargedPeriod(model, found->placement, found->period);
    if (!best.has_value() || charged < best->charged) best = {found->placement, charged};
    if (found->period <= lowest * (1 + kAlike)) break;
  }
  return best;
}

// Candidates of all orders and codecs, the best by the closed form first.
std::vector<Candidate> Candidates(const PipelineModel& model, int64_t max_cap) {
  struct Start {
    double lowest;
    OrderSearch search;
  };
  std::vector<Start> starts;
  for (const std::vector<int>& order : Orders(model)) {
    for (size_t codec = 0; codec < model.codecs.size(); ++codec) {
      // Without a link there is no codec to choose.
      if (order.size() == 1 && codec > 0) break;
      OrderSearch search(model, order, static_cast<int>(codec));
      const double lowest = search.LowestPeriod();
      starts.push_back({lowest, std::move(search)});
    }
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Start& a, const Start& b) { return a.lowest < b.lowest; });
  std::vector<Candidate> candidates;
  double bar = std::numeric_limits<double>::infinity();
  for (const Start& start : starts) {
    // Not worse than the last one that would be simulated.
    if (candidates.size() >= kSimulatedCandidates && start.lowest > bar) break;
    std::optional<Candidate> best = BestOfOrder(model, start.search, start.lowest, max_cap);
    if (!best.has_value()) continue;
    candidates.push_back(*std::move(best));
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.charged < b.charged; });
    if (candidates.size() > kSimulatedCandidates) candidates.pop_back();
    bar = candidates.back().charged;
  }
  return candidates;
}

bool FitsMemory(const PipelineModel& model, const Placement& placement) {
  const std::vector<StageOrder> orders = StageOrders(model.deferred, placement.caps);
  int first = 0;
  for (size_t i = 0; i < placement.order.size(); ++i) {
    const int64_t limit = model.devices[placement.order[i]].memory_limit_bytes;
    const int last = placement.last_layer[i];
    const int64_t usual_cap = static_cast<int64_t>(placement.order.size() - i);
    if (limit > 0 && StageMemoryBytes(model, first, last, orders[i], usual_cap) > limit)
      return false;
    first = last + 1;
  }
  return true;
}

// The published plan, if it fits.
absl::StatusOr<std::optional<Candidate>> AcceptCandidate(const PartitionRequest& request,
                                                         int64_t max_cap) {
  const PipelineModel& model = *request.pipeline;
  if (request.link_seconds == nullptr || request.devices > request.layers) return std::nullopt;
  RUNNEL_ASSIGN_OR_RETURN(const Partition accept, Accept(request));
  Placement placement;
  for (int i = 0; i < request.devices; ++i) {
    placement.order.push_back(i);
    placement.caps.push_back(std::min<int64_t>(request.devices - i, max_cap));
  }
  placement.last_layer = accept.placement.last_layer;
  placement.codecs.assign(request.devices - 1, model.default_codec);
  if (!FitsMemory(model, placement)) return std::nullopt;
  RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, placement));
  return Candidate{placement, ChargedPeriod(model, placement, period)};
}

// On half duplex and where a codec lane is busy the closed form is only a bound: more in flight may
// help.
absl::StatusOr<Candidate> RaiseCaps(const PipelineModel& model, Candidate candidate,
                                    int64_t max_cap) {
  const int64_t stages = static_cast<int64_t>(candidate.placement.order.size());
  for (int64_t i = 0; i < 4; ++i) {
    Candidate raised = candidate;
    for (int64_t n = 0; n < stages; ++n) raised.placement.caps[n] += stages - 1 - n;
    if (raised.placement.caps[0] > max_cap || !FitsMemory(model, raised.placement)) break;
    RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, raised.placement));
    raised.charged = ChargedPeriod(model, raised.placement, period);
    if (raised.charged >= candidate.charged * (1 - kAlike)) break;
    candidate = std::move(raised);
  }
  return candidate;
}

// Gives every link the most exact codecs that cost no time.
absl::Status UpgradeCodecs(const PipelineModel& model, double limit, Placement& placement) {
  for (int& codec : placement.codecs) {
    const int wanted = codec;
    for (codec = 0; codec < wanted; ++codec) {
      RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, placement));
      if (ChargedPeriod(model, placement, period) <= limit) break;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Candidate> Choose(const PipelineModel& model, std::vector<Candidate> candidates,
                                 const std::optional<Candidate>& accept, int64_t max_cap) {
  for (Candidate& candidate : candidates) {
    RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, candidate.placement));
    candidate.charged = ChargedPeriod(model, candidate.placement, period);
    if (model.half_duplex || model.drain_every > 0) {
      RUNNEL_ASSIGN_OR_RETURN(candidate, RaiseCaps(model, std::move(candidate), max_cap));
    }
  }
  if (accept.has_value()) candidates.push_back(*accept);
  if (candidates.empty()) {
    return absl::FailedPreconditionError(
        "runnel: no plan fits the devices' memory; take a smaller batch, more devices, or raise "
        "the "
        "limits");
  }
  Candidate best = *std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.charged < b.charged; });
  double limit = best.charged * (1 + kAlike);
  if (accept.has_value()) limit = std::min(limit, std::max(best.charged, accept->charged));
  RUNNEL_RETURN_IF_ERROR(UpgradeCodecs(model, limit, best.placement));
  return best;
}

}  // namespace

absl::StatusOr<Partition> Runnel(const PartitionRequest& request) {
  RUNNEL_RETURN_IF_ERROR(CheckCounts(request));
  if (request.pipeline == nullptr) {
    return absl::InvalidArgumentError(
        "runnel: needs what devices and links cost; profile the devices first or use the policy "
        "uniform");
  }
  const PipelineModel& model = *request.pipeline;
  RUNNEL_RETURN_IF_ERROR(CheckPipelineModel(model));
  if (model.layers() != request.layers ||
      static_cast<int>(model.devices.size()) != request.devices) {
    return absl::InvalidArgumentError(absl::StrCat("runnel: ", request.layers, " layers on ",
                                                   request.devices, " devices, but costs of ",
                                                   model.layers(), " on ", model.devices.size()));
  }
  CheckedCosts costs(request);
  for (int device = 0; device < request.devices; ++device) {
    for (int layer = 0; layer < request.layers; ++layer) costs.StageSeconds(device, layer, layer);
  }
  RUNNEL_RETURN_IF_ERROR(costs.status());
  const int64_t max_cap =
      model.drain_every > 0 ? std::min(model.max_cap, model.drain_every) : model.max_cap;
  RUNNEL_ASSIGN_OR_RETURN(const std::optional<Candidate> accept, AcceptCandidate(request, max_cap));
  RUNNEL_ASSIGN_OR_RETURN(const Candidate chosen,
                          Choose(model, Candidates(model, max_cap), accept, max_cap));
  RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, chosen.placement));
  return Partition{chosen.placement, period};
}

}  // namespace runnel::policies
