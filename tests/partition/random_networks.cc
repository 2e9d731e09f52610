#include "tests/partition/random_networks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "partition/schedule.h"

namespace runnel {
namespace {

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
  if (!draws.Chance(0.5)) return;
  for (int i = 1; i < pairs; ++i) {
    model.codecs[i].lossy_directions = 2;
    model.codecs[i].noise = model.codecs[i - 1].noise + draws.LogReal(1e-3, 0.1);
  }
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
      device.network.frame_seconds = draws.LogReal(1e-5, 1e-3);
      device.network.byte_seconds = draws.LogReal(1e-10, 1e-8);
      device.feed = {device.network.frame_seconds, draws.LogReal(1e-10, 1e-9)};
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

// The first devices, from central on, on one host with fewer processors than they are. Draws of its
// own: what the network is otherwise does not depend on it.
std::string AddHost(double chance, int most, uint64_t seed, PipelineModel& model) {
  Draws draws(seed ^ 0x4057);
  const int room = draws.Int(2, 4);
  const int near = std::min(room, most);
  if (!draws.Chance(chance) || near < 2) return "";
  model.host_processors = {draws.Real(0.5, room)};
  const double share = draws.Chance(0.5) ? 1 : draws.Real(0.3, 1);
  for (int device = 0; device < near; ++device) {
    model.devices[device].host = 0;
    model.devices[device].measured_share = share;
  }
  return absl::StrCat(", ", near, " devices on ", model.host_processors[0], " processors");
}

}  // namespace

double Draws::LogReal(double low, double high) {
  return std::exp(Real(std::log(low), std::log(high)));
}

int Draws::Int(int low, int high) {
  return std::min(high, low + static_cast<int>(Real(0, 1) * (high - low + 1)));
}

void RandomNetwork::Finish(const std::vector<std::vector<double>>& seconds) {
  cost_ = std::make_unique<MeasuredCost>(*MeasuredCost::ByLayer(seconds));
  model.compute = cost_.get();
  request.layers = model.layers();
  request.devices = static_cast<int>(model.devices.size());
  request.compute = model.compute;
  request.pipeline = &model;
  request.link_seconds = [this](int layer, int from, Direction direction) {
    return WayCost(model, model.default_codec, layer, from, from + 1, direction).total();
  };
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
  model.max_cap = max_cap;
  const double spread = draws.Chance(0.3) ? 1000 : draws.Chance(0.5) ? 5 : 1.2;
  std::vector<double> layer_seconds;
  for (int layer = 0; layer < layers; ++layer) layer_seconds.push_back(draws.LogReal(5e-4, 2e-2));
  std::vector<std::vector<double>> seconds;
  for (int device = 0; device < devices; ++device) {
    const double slower = draws.LogReal(1, spread);
    std::vector<double>& row = seconds.emplace_back();
    for (const double one : layer_seconds) row.push_back(one * slower * draws.Real(0.8, 1.2));
  }
  network->Finish(seconds);
  network->about =
      absl::StrCat(layers, " layers, ", devices, " devices, ", links, ", ", schedule, ", ",
                   model.codecs.size(), " pairs of codecs", AddHost(0.4, devices, seed, model));
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

std::unique_ptr<RandomNetwork> MakeBoards(int boards, double spread, uint64_t seed) {
  Draws draws(seed);
  auto network = std::make_unique<RandomNetwork>();
  PipelineModel& model = network->model;
  const int layers = draws.Int(8, 24);
  AddLayers(layers, draws, model);
  AddCodecs(draws, model);
  const std::string schedule = AddSchedule(draws, model);
  const bool is_radio = draws.Chance(0.3);
  const LinkSpeed link = {LinkRate::Mbps(draws.LogReal(2, 1000)),
                          draws.Chance(0.5) ? 0 : draws.LogReal(1e-4, 0.05), is_radio ? 0 : -1,
                          is_radio ? 2 : 1};
  model.speeds.assign(boards + 1, std::vector<LinkSpeed>(boards + 1, link));
  model.devices.assign(boards + 1, {draws.Real(0.25, 0.4), draws.Real(0.25, 0.4), 1e-9});
  std::vector<double> layer_seconds;
  for (int layer = 0; layer < layers; ++layer) layer_seconds.push_back(draws.LogReal(5e-4, 2e-2));
  const double central = draws.LogReal(0.3, 3);
  std::vector<std::vector<double>> seconds;
  for (int device = 0; device <= boards; ++device) {
    Draws own(seed * 1000 + static_cast<uint64_t>(device));
    const double slower = device == 0 ? central : own.Real(1, 1 + spread);
    std::vector<double>& row = seconds.emplace_back();
    for (const double one : layer_seconds) row.push_back(one * slower);
  }
  network->Finish(seconds);
  network->about = absl::StrCat(layers, " layers, ", boards, " boards, ", link.rate.mbps(),
                                " Mbit/s", is_radio ? " of one radio, " : ", ", schedule,
                                AddHost(0.4, boards + 1, seed, model));
  return network;
}

}  // namespace runnel
