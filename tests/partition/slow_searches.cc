#include "tests/partition/slow_searches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/partition/random_networks.h"

namespace runnel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

double SimulatedCharge(const PipelineModel& model, const Placement& placement) {
  if (!FitsMemory(model, placement)) return kInfinity;
  return ChargedPeriod(model, placement, SimulatedPeriod(model, placement).value_or(kInfinity));
}

namespace {

// Tries everything; what cannot be below the best so far is not simulated.
class Trial {
 public:
  explicit Trial(const PipelineModel& model)
      : model_(model),
        most_(model.drain_every > 0 ? std::min(model.max_cap, model.drain_every) : model.max_cap),
        used_(model.devices.size(), false) {}

  Placement Run() {
    Place(0);
    return best_;
  }

 private:
  void Place(int first) {
    for (size_t device = 0; device < model_.devices.size(); ++device) {
      if (used_[device] || (tried_.order.empty() != (device == 0))) continue;
      used_[device] = true;
      tried_.order.push_back(static_cast<int>(device));
      for (int last = first; last < model_.layers(); ++last) {
        tried_.last_layer.push_back(last);
        if (last + 1 < model_.layers()) {
          Place(last + 1);
        } else {
          tried_.codecs.assign(tried_.order.size() - 1, 0);
          Codecs(0);
        }
        tried_.last_layer.pop_back();
      }
      tried_.order.pop_back();
      used_[device] = false;
    }
  }

  void Codecs(size_t link) {
    if (link == tried_.codecs.size()) return Caps();
    for (size_t codec = 0; codec < model_.codecs.size(); ++codec) {
      tried_.codecs[link] = static_cast<int>(codec);
      Codecs(link + 1);
    }
  }

  void Caps() {
    if (tried_.caps.size() == tried_.order.size()) return Rate();
    const int64_t highest = tried_.caps.empty() ? most_ : tried_.caps.back();
    for (int64_t cap = 1; cap <= highest; ++cap) {
      tried_.caps.push_back(cap);
      Caps();
      tried_.caps.pop_back();
    }
  }

  void Rate() {
    const SimulatedPipeline pipeline = ToPipeline(model_, tried_);
    const bool drains = model_.drain_every > 0 || model_.barrier_every > 0;
    const double bound = (drains ? ResourceBoundNs(pipeline) : BoundNs(pipeline)) * 1e-9;
    if (ChargedPeriod(model_, tried_, bound) >= least_) return;
    const double charged = SimulatedCharge(model_, tried_);
    if (charged >= least_) return;
    least_ = charged;
    best_ = tried_;
  }

  const PipelineModel& model_;
  int64_t most_;
  std::vector<bool> used_;
  Placement tried_;
  Placement best_;
  double least_ = kInfinity;
};

Placement RandomPlacement(const PipelineModel& model, int64_t most, Draws& draws) {
  const int devices = static_cast<int>(model.devices.size());
  std::vector<int> others(devices - 1);
  std::iota(others.begin(), others.end(), 1);
  for (int i = 0; i + 1 < devices; ++i) std::swap(others[i], others[draws.Int(i, devices - 2)]);
  const int stages = draws.Int(1, std::min(devices, model.layers()));
  Placement placement;
  placement.order = {0};
  placement.order.insert(placement.order.end(), others.begin(), others.begin() + stages - 1);
  // Layers by speed, as near as every stage can have one.
  std::vector<double> speeds;
  double sum = 0;
  for (const int device : placement.order) {
    speeds.push_back(1 / model.compute->StageSeconds(device, 0, model.layers() - 1));
    sum += speeds.back();
  }
  double share = 0;
  for (int i = 0; i < stages; ++i) {
    share += speeds[i] / sum;
    const int least = i > 0 ? placement.last_layer[i - 1] + 1 : 0;
    const int last = static_cast<int>(std::lround(share * model.layers())) - 1;
    placement.last_layer.push_back(std::clamp(last, least, model.layers() - stages + i));
    placement.caps.push_back(std::min<int64_t>(most, stages - i));
  }
  placement.last_layer.back() = model.layers() - 1;
  const int codec = draws.Int(0, static_cast<int>(model.codecs.size()) - 1);
  placement.codecs.assign(stages - 1, codec);
  return placement;
}

void ChangeDevices(const PipelineModel& model, Draws& draws, Placement& placement) {
  const int stages = static_cast<int>(placement.order.size());
  const int at = draws.Int(1, stages - 1);
  if (draws.Chance(0.3)) {  // without that stage
    placement.order.erase(placement.order.begin() + at);
    placement.last_layer.erase(placement.last_layer.begin() + at - 1);
    placement.caps.erase(placement.caps.begin() + at - 1);
    placement.codecs.erase(placement.codecs.begin() + at - 1);
    return;
  }
  const int device = draws.Int(1, static_cast<int>(model.devices.size()) - 1);
  const auto found = std::find(placement.order.begin(), placement.order.end(), device);
  if (found == placement.order.end()) {
    placement.order[at] = device;
  } else {
    std::swap(*found, placement.order[at]);
  }
}

// One random change.
Placement Changed(const PipelineModel& model, int64_t most, Draws& draws, Placement placement) {
  const int stages = static_cast<int>(placement.order.size());
  const int stage = draws.Int(0, stages - 1);
  switch (stages == 1 ? 0 : draws.Int(0, 3)) {
    case 0: {
      std::vector<int64_t>& caps = placement.caps;
      const int64_t cap = std::clamp<int64_t>(caps[stage] + (draws.Chance(0.5) ? 1 : -1), 1, most);
      for (int i = 0; i < stages; ++i) {
        caps[i] = i <= stage ? std::max(caps[i], cap) : std::min(caps[i], cap);
      }
      caps[stage] = cap;
      return placement;
    }
    case 1: {
      const int link = draws.Int(0, stages - 2);
      const int least = link > 0 ? placement.last_layer[link - 1] + 1 : 0;
      const int largest = placement.last_layer[link + 1] - 1;
      const int by = draws.Chance(0.5) ? draws.Int(1, 3) : -draws.Int(1, 3);
      int& last = placement.last_layer[link];
      last = std::clamp(last + by, least, largest);
      return placement;
    }
    case 2:
      placement.codecs[draws.Int(0, stages - 2)] =
          draws.Int(0, static_cast<int>(model.codecs.size()) - 1);
      return placement;
    default:
      ChangeDevices(model, draws, placement);
      return placement;
  }
}

}  // namespace

Placement BestByTryingAll(const PipelineModel& model) { return Trial(model).Run(); }

Placement BestOfRestarts(const PipelineModel& model, int restarts, int changes, uint64_t seed) {
  Draws draws(seed);
  const int64_t most =
      model.drain_every > 0 ? std::min(model.max_cap, model.drain_every) : model.max_cap;
  Placement best;
  double least = kInfinity;
  for (int i = 0; i < restarts; ++i) {
    Placement placement = RandomPlacement(model, most, draws);
    double charged = SimulatedCharge(model, placement);
    for (int j = 0; j < changes; ++j) {
      Placement other = Changed(model, most, draws, placement);
      if (draws.Chance(0.3)) other = Changed(model, most, draws, std::move(other));
      const double bound = ResourceBoundNs(ToPipeline(model, other)) * 1e-9;
      if (ChargedPeriod(model, other, bound) >= charged) continue;
      const double then = SimulatedCharge(model, other);
      if (then > charged) continue;
      placement = std::move(other);
      charged = then;
    }
    if (charged >= least) continue;
    least = charged;
    best = placement;
  }
  return best;
}

}  // namespace runnel
