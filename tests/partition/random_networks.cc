#include "tests/partition/random_networks.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "partition/schedule.h"

namespace runnel {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void AddLayers(int layers, Draws& draws, PipelineModel& model) {
  const double bytes = draws.LogReal(2e4, 2e6);
  for (int layer = 0; layer < layers; ++layer) {
    // Smaller towards the end, as in convolutional networks.
    const double size = bytes * draws.LogReal(0.2, 1) * std::pow(0.1, 1.0 * layer / layers);
    model.raw_bytes.push_back(static_cast<int64_t>(size) / 4 * 4 + 4);
    const auto parameters = static_cast<int64_t>(draws.LogReal(1e3, 1e6));
    model.memory.push_back({3 * parameters, parameters, static_cast<int64_t>(2 * size)});
  }
  model.input_bytes = static_cast<int64_t>(bytes);
  model.label_bytes = 320;
}

void AddCodecs(Draws& draws, PipelineModel& model) {
  const std::pair<double, double> shares[] = {{1, 1}, {0.25, 0.25}, {0.07, 0.13}};
  const int pairs = draws.Int(1, 3);
  for (int i = 0; i < pairs; ++i) {
    CodecCost& codec = model.codecs.emplace_back();
    codec.forward_works = codec.backward_works = i > 0;
    for (const int64_t raw : model.raw_bytes) {
      codec.down_bytes.push_back(64 + static_cast<int64_t>(shares[i].first * raw));
      codec.up_bytes.push_back(64 + static_cast<int64_t>(shares[i].second * raw));
    }
  }
  model.default_codec = draws.Int(0, pairs - 1);
}

// Returns what to say about them.
std::string AddLinks(int devices, Draws& draws, PipelineModel& model) {
  const double slowest = draws.LogReal(0.5, 200);
  const double delay = draws.Chance(0.4) ? 0 : draws.LogReal(1e-4, 0.2);
  const auto rate = [&] { return LinkRate::Mbps(draws.LogReal(slowest, 10 * slowest)); };
  model.speeds.assign(devices, std::vector<LinkSpeed>(devices));
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (from != to) model.speeds[from][to] = {rate(), delay * draws.Real(0.5, 1)};
    }
  }
  const int kind = draws.Int(0, 3);
  if (kind <= 1) return "own links";
  // Devices of each site share a medium, or have fast links; between sites there are slow ones.
  const int sites = draws.Int(1, 2);
  const int hops = draws.Int(1, 2);
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      if (from == to || from % sites != to % sites) continue;
      LinkSpeed& speed = model.speeds[from][to];
      if (kind == 2) {
        speed = {LinkRate::Mbps(4 * slowest), delay, from % sites, hops};
      } else {
        speed = {LinkRate::Mbps(50 * slowest), delay / 20};
      }
    }
  }
  return absl::StrCat(sites, kind == 2 ? " media" : " sites");
}

void AddDevices(int devices, Draws& draws, PipelineModel& model) {
  model.devices.resize(devices);
  const bool codes_slowly = draws.Chance(0.4);
  const bool shares_processors = draws.Chance(0.3);
  LayerMemory all;
  int64_t largest = 0;
  for (size_t layer = 0; layer < model.memory.size(); ++layer) {
    all += model.memory[layer];
    largest = std::max(largest, model.raw_bytes[layer]);
  }
  const bool is_limited = draws.Chance(0.25);
  for (DeviceCost& device : model.devices) {
    device.forward_share = draws.Real(0.25, 0.4);
    device.input_gradient_share = draws.Real(0.25, 0.4);
    device.codec_seconds_per_byte = 1 / draws.LogReal(codes_slowly ? 1e7 : 1e9, 1e10);
    if (shares_processors && draws.Chance(0.7)) {
      device.shares_processor = true;
      device.micro_batch_seconds = draws.LogReal(1e-4, 2e-3);
      device.frame_seconds = draws.LogReal(1e-5, 1e-3);
      device.link_byte_seconds = draws.LogReal(1e-10, 1e-8);
      device.feed_byte_seconds = draws.LogReal(1e-10, 1e-9);
    }
    if (is_limited && draws.Chance(0.6)) {
      device.memory_limit_bytes = static_cast<int64_t>(
          draws.Real(0.15, 1.5) *
          static_cast<double>(all.state_bytes + all.stash_bytes + 4 * largest));
    }
  }
}

std::string AddSchedule(Draws& draws, PipelineModel& model) {
  switch (draws.Int(0, 3)) {
    case 0:
      return "asynchronous";
    case 1:
      model.barrier_every = draws.Int(1, 100);
      model.barrier_pause_seconds = draws.Chance(0.5) ? draws.LogReal(1e-3, 0.1) : 0;
      return absl::StrCat("asynchronous, barriers every ", model.barrier_every);
    case 2:
      model.drain_every = draws.Int(2, 12);
      model.deferred = (*FindSchedule("zb_h1"))->deferred;
      return absl::StrCat("zb_h1, steps of ", model.drain_every);
    default:
      model.drain_every = draws.Int(2, 12);
      return absl::StrCat("synchronous, steps of ", model.drain_every);
  }
}

}  // namespace

double Draws::LogReal(double low, double high) {
  return std::exp(Real(std::log(low), std::log(high)));
}

int Draws::Int(int low, int high) {
  return std::min(high, low + static_cast<int>(Real(0, 1) * (high - low + 1)));
}

std::unique_ptr<RandomNetwork> MakeNetwork(int layers, int devices, int64_t max_cap,
                                           uint64_t seed) {
  Draws draws(seed);
  auto network = std::make_unique<RandomNetwork>();
  PipelineModel& model = network->model;
  AddLayers(layers, draws, model);
  AddCodecs(draws, model);
  const std::string links = AddLinks(devices, draws, model);
  AddDevices(devices, draws, model);
  const std::string schedule = AddSchedule(draws, model);
  const double spread = draws.Chance(0.3) ? 1000 : draws.Chance(0.5) ? 5 : 1.2;
  std::vector<double> layer_seconds;
  for (int layer = 0; layer < layers; ++layer) layer_seconds.push_back(draws.LogReal(5e-4, 2e-2));
  std::vector<std::vector<double>> seconds;
  for (int device = 0; device < devices; ++device) {
    const double slower = draws.LogReal(1, spread);
    std::vector<double>& row = seconds.emplace_back();
    for (const double one : layer_seconds) row.push_back(one * slower * draws.Real(0.8, 1.2));
  }
  network->cost_ = std::make_unique<MeasuredCost>(*MeasuredCost::ByLayer(seconds));
  model.compute = network->cost_.get();
  model.max_cap = max_cap;
  network->request.layers = layers;
  network->request.devices = devices;
  network->request.compute = model.compute;
  network->request.pipeline = &model;
  network->request.link_seconds = [&model](int layer, int from, Direction direction) {
    return WayCost(model, model.default_codec, layer, from, from + 1, direction).total();
  };
  network->about = absl::StrCat(layers, " layers, ", devices, " devices, ", links, ", ", schedule,
                                ", ", model.codecs.size(), " pairs of codecs");
  return network;
}

std::unique_ptr<RandomNetwork> MakeSmallNetwork(uint64_t seed) {
  Draws draws(seed ^ 0x5eed);
  const int layers = draws.Int(3, 6);
  return MakeNetwork(layers, draws.Int(1, 3), 4, seed);
}

std::unique_ptr<RandomNetwork> MakeLargeNetwork(uint64_t seed) {
  Draws draws(seed ^ 0x5eed);
  const int layers = draws.Int(6, 24);
  return MakeNetwork(layers, draws.Int(4, 12), 16, seed);
}

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
