#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "partition/policies/policies.h"
#include "partition/policies/runnel_orders.h"
#include "partition/policies/runnel_polish.h"
#include "proto/base/status_macros.h"

namespace runnel::policies {
namespace {

// Charges nearer than this count as equal where exactness decides.
constexpr double kAlike = 1e-4;
// Precision of the closed form; where it is only a bound, orders this near are simulated too.
constexpr double kPrecision = 1e-4;
constexpr double kNear = 1.06;
constexpr double kNearDrained = 1.2;
// SearchTables::steps of the best orders, with all layers.
constexpr int64_t kRefiningSteps = 5'000'000;
// Layers of a model, or runs of them, between which orders are compared.
constexpr int kCoarseBlocks = 48;
// Micro-batches that may be simulated for each stage of a plan that is improved, and of those that
// are the best then and are improved again.
constexpr int64_t kPolishedMicroBatches = 1'500;
constexpr int64_t kPolishedAgain = 7'000;
constexpr int64_t kPolishedStages = 8;
constexpr size_t kPolishedTwice = 3;
// The published policies' plans are made for no more devices than this: it takes them devices times
// layers^2.
constexpr int kMostDevicesOfOthers = 64;
// Up to so many devices are also planned without the last ones, a search for each number of them.
constexpr int kMostLeftOut = 8;

// The answer of a policy that takes all devices in the given order, if it fits.
absl::StatusOr<std::optional<Candidate>> CandidateOf(
    absl::StatusOr<Partition> (*policy)(const PartitionRequest&), const PartitionRequest& request,
    int64_t max_cap) {
  const PipelineModel& model = *request.pipeline;
  RUNNEL_ASSIGN_OR_RETURN(Partition partition, policy(request));
  Placement& placement = partition.placement;
  for (int i = 0; i < request.devices; ++i) {
    placement.order.push_back(i);
    placement.caps.push_back(std::min<int64_t>(request.devices - i, max_cap));
  }
  placement.codecs.assign(request.devices - 1, model.default_codec);
  if (!FitsMemory(model, placement)) return std::nullopt;
  RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, placement));
  const double charged = ChargedPeriod(model, placement, period);
  return Candidate{std::move(placement), charged};
}

// Each stage computes for about as long as the others, on links that lose nothing, with twice the
// usual caps: another place to improve from.
Candidate EvenlyCut(const PipelineModel& model, const std::vector<int>& order, int64_t max_cap) {
  const int layers = model.layers();
  const int stages = static_cast<int>(order.size());
  const auto speed = [&](int device) {
    return 1 / std::max(1e-12, ComputeSeconds(model, device, 0, layers - 1));
  };
  double all = 0;
  for (const int device : order) all += speed(device);
  Placement placement;
  placement.order = order;
  double share = 0;
  int last = -1;
  for (int i = 0; i < stages; ++i) {
    share += speed(order[i]) / all;
    const int most = layers - stages + i;
    last = std::min(last + 1, most);
    while (last < most &&
           ComputeSeconds(model, 0, 0, last) < share * ComputeSeconds(model, 0, 0, layers - 1)) {
      ++last;
    }
    placement.last_layer.push_back(last);
    placement.caps.push_back(std::min<int64_t>(2 * (stages - i) - 1, max_cap));
  }
  placement.last_layer.back() = layers - 1;
  placement.codecs.assign(stages - 1, 0);
  const double charged = EstimatedCharge(model, placement);
  return {std::move(placement), charged};
}

// Placements of the best orders by the closed form, and even cuts of them, the best ones first.
std::vector<Candidate> BestOrders(const PipelineModel& model, int64_t max_cap) {
  std::vector<std::vector<int>> orders;
  {
    TablesByNoise coarse = MakeTablesByNoise(model, CoarseEnds(model, kCoarseBlocks));
    orders = OrderClimb(coarse, max_cap).Run();
  }
  TablesByNoise tables = MakeTablesByNoise(model, AllEnds(model));
  OrderRating rating(tables, max_cap);
  std::vector<Candidate> candidates;
  double least = std::numeric_limits<double>::infinity();
  const double near = DrainsEvery(model) > 0 ? kNearDrained : kNear;
  for (const std::vector<int>& order : orders) {
    if (StepsOf(tables) > kRefiningSteps) break;
    Candidate evenly = EvenlyCut(model, order, max_cap);
    if (FitsMemory(model, evenly.placement)) candidates.push_back(std::move(evenly));
    for (SearchTables& of_noise : tables) {
      std::optional<Candidate> best = rating.BeatWith(of_noise, order, least * near, kPrecision);
      if (!best.has_value()) continue;
      least = std::min(least, best->charged);
      candidates.push_back(*std::move(best));
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.charged < b.charged; });
  return candidates;
}

// Small changes by simulation where the closed form is not all there is to say.
std::vector<Candidate> Improved(const PipelineModel& model, std::vector<Candidate> candidates,
                                int64_t max_cap) {
  int64_t stages = 0;
  for (const Candidate& one : candidates) {
    stages = std::max(stages, static_cast<int64_t>(one.placement.order.size()));
  }
  const auto improve = [&](size_t count, int64_t micro_batches) {
    for (size_t i = 0; i < count; ++i) {
      Polish polish(model, max_cap, micro_batches * std::min(stages, kPolishedStages));
      candidates[i] = polish.Improve(std::move(candidates[i]));
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.charged < b.charged; });
    const auto same = [](const Candidate& a, const Candidate& b) {
      return a.placement == b.placement;
    };
    candidates.erase(std::unique(candidates.begin(), candidates.end(), same), candidates.end());
  };
  improve(candidates.size(), kPolishedMicroBatches);
  improve(std::min(candidates.size(), kPolishedTwice), kPolishedAgain);
  return candidates;
}

absl::StatusOr<Candidate> Choose(const PipelineModel& model, std::vector<Candidate> candidates,
                                 const std::vector<Candidate>& others, int64_t max_cap) {
  candidates.insert(candidates.end(), others.begin(), others.end());
  std::vector<Candidate> improved = Improved(model, std::move(candidates), max_cap);
  for (const Candidate& other : others) improved.push_back(other);
  if (improved.empty()) {
    return absl::ResourceExhaustedError(
        "runnel: no plan fits the devices' memory; take a smaller batch, more devices, or raise "
        "the limits");
  }
  for (Candidate& candidate : improved) {
    RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, candidate.placement));
    candidate.charged = ChargedPeriod(model, candidate.placement, period);
  }
  Candidate best = *std::min_element(
      improved.begin(), improved.end(),
      [](const Candidate& a, const Candidate& b) { return a.charged < b.charged; });
  double limit = best.charged * (1 + kAlike);
  for (const Candidate& other : others) limit = std::min(limit, other.charged);
  RUNNEL_RETURN_IF_ERROR(SettleCodecsAndCaps(model, std::max(limit, best.charged), best.placement));
  return best;
}

// Answers of the policies that are compared with this one.
absl::StatusOr<std::vector<Candidate>> CandidatesOfOthers(const PartitionRequest& request,
                                                          int64_t max_cap) {
  std::vector<Candidate> candidates;
  if (request.link_seconds == nullptr || request.devices > request.layers ||
      request.devices > kMostDevicesOfOthers) {
    return candidates;
  }
  for (const auto policy : {Accept, DynamicProgramming, FtpipehdPlus, Uniform}) {
    RUNNEL_ASSIGN_OR_RETURN(std::optional<Candidate> one, CandidateOf(policy, request, max_cap));
    if (one.has_value()) candidates.push_back(*std::move(one));
  }
  return candidates;
}

absl::StatusOr<Candidate> PlanOnAll(const PartitionRequest& request, int64_t max_cap) {
  const PipelineModel& model = *request.pipeline;
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<Candidate> others,
                          CandidatesOfOthers(request, max_cap));
  RUNNEL_ASSIGN_OR_RETURN(Candidate chosen,
                          Choose(model, BestOrders(model, max_cap), others, max_cap));
  RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, chosen.placement));
  chosen.charged = ChargedPeriod(model, chosen.placement, period);
  return chosen;
}

// A lower bound for plans on these devices, as if links took no time, layers were divided at will,
// and each device were as much faster than device 0 on all layers as on its best one. It takes the
// times of layers to add up. 0 where a device takes no time for one or all.
double LeastCharge(const PipelineModel& model) {
  const int last = model.layers() - 1;
  const auto devices = static_cast<int>(model.devices.size());
  std::vector<double> speeds;  // device 0's seconds for layers that take the device a second
  for (int device = 0; device < devices; ++device) {
    double least = std::numeric_limits<double>::infinity();
    for (int layer = 0; layer <= last; ++layer) {
      const double first = ComputeSeconds(model, 0, layer, layer);
      if (first > 0) least = std::min(least, ComputeSeconds(model, device, layer, layer) / first);
    }
    if (least <= 0 || std::isinf(least)) return 0;
    speeds.push_back(1 / least);
  }
  std::sort(speeds.begin() + 1, speeds.end(), std::greater<>());
  double charged = std::numeric_limits<double>::infinity();
  double sum = 0;
  Placement placement;
  placement.caps = {1};
  for (const double speed : speeds) {
    sum += speed;
    placement.order.push_back(0);
    const double period = ComputeSeconds(model, 0, 0, last) / sum;
    charged = std::min(charged, ChargedPeriod(model, placement, period));
  }
  return charged;
}

// A search that has more devices to look at may miss what one with fewer finds. So the plan is the
// best one of the first device alone, the first two, and so on: a device that joins behind them
// never makes it worse.
absl::StatusOr<Candidate> PlanOnAnyCount(const PartitionRequest& request, int64_t max_cap) {
  absl::StatusOr<Candidate> best = PlanOnAll(request, max_cap);
  if (request.devices > kMostLeftOut) return best;
  PipelineModel fewer = *request.pipeline;
  PartitionRequest on_fewer = request;
  on_fewer.pipeline = &fewer;
  while (--on_fewer.devices > 1) {
    fewer.devices.resize(on_fewer.devices);
    fewer.speeds.resize(on_fewer.devices);
    for (std::vector<LinkSpeed>& row : fewer.speeds) row.resize(on_fewer.devices);
    if (best.ok() && LeastCharge(fewer) >= best->charged) break;
    absl::StatusOr<Candidate> one = PlanOnAll(on_fewer, max_cap);
    // A smaller search that fails takes nothing from a plan that is there.
    if (!one.ok() && !best.ok() && !absl::IsResourceExhausted(one.status())) return one;
    if (one.ok() && (!best.ok() || one->charged < best->charged)) best = std::move(one);
  }
  return best;
}

}  // namespace

absl::StatusOr<Partition> Runnel(const PartitionRequest& request) {
  RUNNEL_RETURN_IF_ERROR(CheckIsSome(request));
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
  RUNNEL_ASSIGN_OR_RETURN(const Candidate chosen, PlanOnAnyCount(request, max_cap));
  RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, chosen.placement));
  return Partition{chosen.placement, period};
}

}  // namespace runnel::policies
