#include "partition/policies/runnel_polish.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "proto/base/status_macros.h"

namespace runnel::policies {
namespace {

constexpr double kGain = 2e-4;
// With more devices the closed form chooses alone.
constexpr int kMostExchanged = 12;
// So many of the nearest other cuts, times the number of cuts, are tried together with a cap. Where
// one cut has no room to move, the others have more of them.
constexpr size_t kNearCuts = 4;

// Raises the cap of stage `stage` by one, and those of earlier stages as far as caps may not rise.
void RaiseCap(size_t stage, std::vector<int64_t>& caps) {
  for (size_t i = 0; i < stage; ++i) caps[i] = std::max(caps[i], caps[stage] + 1);
  ++caps[stage];
}

void LowerCap(size_t stage, std::vector<int64_t>& caps) {
  for (size_t i = stage + 1; i < caps.size(); ++i) caps[i] = std::min(caps[i], caps[stage] - 1);
  --caps[stage];
}

// Adds placements with one cut elsewhere, the nearest places first, where the link has `codec` if
// that is given.
void AddOtherCuts(const Placement& placement, std::optional<int> codec,
                  std::vector<Placement>& changes) {
  const auto stages = static_cast<int>(placement.order.size());
  for (int distance = 1; distance < placement.last_layer.back(); ++distance) {
    for (int i = 0; i + 1 < stages; ++i) {
      const int last = placement.last_layer[i];
      const int least = i > 0 ? placement.last_layer[i - 1] + 1 : 0;
      for (const int to : {last + distance, last - distance}) {
        if (to < least || to >= placement.last_layer[i + 1]) continue;
        Placement& one = changes.emplace_back(placement);
        one.last_layer[i] = to;
        one.codecs[i] = codec.value_or(placement.codecs[i]);
      }
    }
  }
}

// Adds placements with one cut a little elsewhere and one cap more, or less: fewer layers in front
// may pay only together with more in flight.
void AddOtherCutsWithCaps(int64_t max_cap, const Placement& placement,
                          std::vector<Placement>& changes) {
  const size_t stages = placement.order.size();
  std::vector<Placement> cuts;
  AddOtherCuts(placement, std::nullopt, cuts);
  cuts.resize(std::min(cuts.size(), kNearCuts * (stages - 1)));
  for (const Placement& cut : cuts) {
    for (size_t i = 0; i < stages; ++i) {
      if (std::max(cut.caps[0], cut.caps[i] + 1) <= max_cap)
        RaiseCap(i, changes.emplace_back(cut).caps);
      if (cut.caps[i] > 1) LowerCap(i, changes.emplace_back(cut).caps);
    }
  }
}

// Adds placements with two neighbouring cuts elsewhere.
void AddOtherPairsOfCuts(const Placement& placement, std::vector<Placement>& changes) {
  const auto stages = static_cast<int>(placement.order.size());
  for (int i = 0; i + 2 < stages; ++i) {
    for (const int first : {-2, -1, 1, 2}) {
      for (const int second : {-2, -1, 1, 2}) {
        Placement one = placement;
        one.last_layer[i] += first;
        one.last_layer[i + 1] += second;
        const int before = i > 0 ? one.last_layer[i - 1] : -1;
        if (one.last_layer[i] > before && one.last_layer[i + 1] > one.last_layer[i] &&
            one.last_layer[i + 1] < one.last_layer[i + 2])
          changes.push_back(std::move(one));
      }
    }
  }
}

// Adds placements with one stage less, two devices exchanged, or one device replaced.
void AddOtherDevices(const PipelineModel& model, const Placement& placement,
                     std::vector<Placement>& changes) {
  const int stages = static_cast<int>(placement.order.size());
  const int devices = static_cast<int>(model.devices.size());
  const auto drop = [&](int stage, int last_of) {
    Placement& one = changes.emplace_back(placement);
    one.order.erase(one.order.begin() + stage);
    one.caps.erase(one.caps.begin() + stage);
    one.last_layer.erase(one.last_layer.begin() + last_of);
    one.codecs.erase(one.codecs.begin() + last_of);
  };
  for (int i = 1; i < stages; ++i) {
    drop(i, i - 1);  // its layers go to the stage before
    if (i + 1 < stages) drop(i, i);
    for (int j = i + 1; j < stages; ++j) {
      Placement& one = changes.emplace_back(placement);
      std::swap(one.order[i], one.order[j]);
    }
    for (int device = 1; device < devices && devices <= kMostExchanged; ++device) {
      if (std::find(placement.order.begin(), placement.order.end(), device) ==
          placement.order.end()) {
        changes.emplace_back(placement).order[i] = device;
      }
    }
  }
}

// Adds placements in which a device that has nothing takes the end of a stage's layers, one of them
// or half, with one micro-batch in flight more in front of it or not.
void AddMoreDevices(const PipelineModel& model, int64_t max_cap, const Placement& placement,
                    std::vector<Placement>& changes) {
  const int stages = static_cast<int>(placement.order.size());
  const int devices = static_cast<int>(model.devices.size());
  if (devices > kMostExchanged) return;
  const auto insert = [&](int stage, int device, int given) {
    Placement more = placement;
    more.order.insert(more.order.begin() + stage + 1, device);
    more.last_layer.insert(more.last_layer.begin() + stage, placement.last_layer[stage] - given);
    more.codecs.insert(more.codecs.begin() + stage, model.default_codec);
    const bool is_last = stage + 1 == stages;
    more.caps.insert(more.caps.begin() + stage + 1, is_last ? 1 : placement.caps[stage + 1]);
    changes.push_back(more);
    if (placement.caps[0] == max_cap) return;
    for (int i = 0; i <= stage; ++i) ++more.caps[i];
    changes.push_back(std::move(more));
  };
  for (int i = 0; i < stages; ++i) {
    const int layers = placement.last_layer[i] - (i > 0 ? placement.last_layer[i - 1] : -1);
    for (int device = 1; device < devices && layers > 1; ++device) {
      if (std::find(placement.order.begin(), placement.order.end(), device) !=
          placement.order.end())
        continue;
      insert(i, device, 1);
      if (layers > 3) insert(i, device, layers / 2);
    }
  }
}

// Placements with one change each, caps first.
std::vector<Placement> Changes(const PipelineModel& model, int64_t max_cap,
                               const Placement& placement) {
  std::vector<Placement> changes;
  const size_t stages = placement.order.size();
  for (size_t i = 0; i < stages; ++i) {
    if (std::max(placement.caps[0], placement.caps[i] + 1) > max_cap) continue;
    RaiseCap(i, changes.emplace_back(placement).caps);
  }
  // All at once: that much for each stage behind, or for all of them.
  for (const auto& [by_stage, by] : {std::pair<int64_t, int64_t>{1, 0}, {0, 1}, {2, 0}, {0, 2}}) {
    Placement deeper = placement;
    for (size_t i = 0; i < stages; ++i) {
      deeper.caps[i] += by_stage * static_cast<int64_t>(stages - 1 - i) + by;
      deeper.caps[i] = std::min(deeper.caps[i], max_cap);
    }
    if (deeper.caps != placement.caps) changes.push_back(std::move(deeper));
  }
  for (size_t i = 0; i < stages; ++i) {
    if (placement.caps[i] > 1) LowerCap(i, changes.emplace_back(placement).caps);
  }
  AddOtherCuts(placement, std::nullopt, changes);
  for (size_t i = 0; i + 1 < stages; ++i) {
    for (size_t codec = 0; codec < model.codecs.size(); ++codec) {
      if (placement.codecs[i] == static_cast<int>(codec)) continue;
      changes.emplace_back(placement).codecs[i] = static_cast<int>(codec);
    }
  }
  AddOtherDevices(model, placement, changes);
  AddMoreDevices(model, max_cap, placement, changes);
  AddOtherPairsOfCuts(placement, changes);
  AddOtherCutsWithCaps(max_cap, placement, changes);
  for (size_t codec = 0; codec < model.codecs.size() && model.codecs.size() > 1; ++codec)
    AddOtherCuts(placement, static_cast<int>(codec), changes);
  return changes;
}

}  // namespace

bool IsExact(const PipelineModel& model, const Placement& placement) {
  return DrainsEvery(model) == 0 && BoundIsExact(ToPipeline(model, placement));
}

double Polish::Charge(const Placement& placement) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!FitsMemory(model_, placement)) return kInfinity;
  const auto stages = static_cast<int64_t>(placement.order.size());
  if (DrainsEvery(model_) > 0) {
    budget_ -= stages * std::min(DrainsEvery(model_), 16 * placement.caps[0] + 16);
    return ChargedPeriod(model_, placement, SimulatedPeriod(model_, placement).value_or(kInfinity));
  }
  SimulatedPipeline pipeline = ToPipeline(model_, placement);
  int64_t kept = placement.caps[0];
  for (const int64_t deferred : pipeline.deferred_weight_gradients) {
    kept = std::max(kept, placement.caps[0] + deferred);
  }
  const int64_t micro_batches = BoundIsExact(pipeline) ? 0 : 8 * kept + 80;
  budget_ -= stages * (micro_batches + 4);
  return ChargedPeriod(
      model_, placement,
      SteadyPeriodNs(std::move(pipeline), micro_batches).value_or(kInfinity) * 1e-9);
}

bool Polish::Gains(const Placement& changed, Candidate& candidate) {
  const double charged = Charge(changed);
  if (charged >= candidate.charged * (1 - kGain)) return false;
  candidate = {changed, charged};
  return true;
}

bool Polish::Step(Candidate& candidate) {
  for (const Placement& changed : Changes(model_, max_cap_, candidate.placement)) {
    if (budget_ <= 0) return false;
    // No period is below the bound.
    const double bound = BoundNs(ToPipeline(model_, changed)) * 1e-9;
    if (DrainsEvery(model_) == 0 && ChargedPeriod(model_, changed, bound) >= candidate.charged)
      continue;
    if (Gains(changed, candidate)) return true;
  }
  return false;
}

Candidate Polish::Improve(Candidate candidate) {
  candidate.charged = Charge(candidate.placement);
  while (Step(candidate)) {
  }
  return candidate;
}

absl::Status SettleCodecsAndCaps(const PipelineModel& model, double limit, Placement& placement) {
  const auto is_within = [&](const Placement& changed) -> absl::StatusOr<bool> {
    if (!FitsMemory(model, changed)) return false;
    const double bound = BoundNs(ToPipeline(model, changed)) * 1e-9;
    if (DrainsEvery(model) == 0 && ChargedPeriod(model, changed, bound) > limit) return false;
    RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model, changed));
    return ChargedPeriod(model, changed, period) <= limit;
  };
  for (size_t link = 0; link < placement.codecs.size(); ++link) {
    for (int codec = 0; codec < placement.codecs[link]; ++codec) {
      Placement changed = placement;
      changed.codecs[link] = codec;
      RUNNEL_ASSIGN_OR_RETURN(const bool is_enough, is_within(changed));
      if (is_enough) placement = std::move(changed);
    }
  }
  for (size_t stage = 0; stage + 1 < placement.caps.size(); ++stage) {
    while (placement.caps[stage] > std::max<int64_t>(1, placement.caps[stage + 1])) {
      Placement changed = placement;
      --changed.caps[stage];
      RUNNEL_ASSIGN_OR_RETURN(const bool is_enough, is_within(changed));
      if (!is_enough) break;
      placement = std::move(changed);
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel::policies
