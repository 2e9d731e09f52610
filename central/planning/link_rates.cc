#include "central/planning/link_rates.h"

namespace runnel {
namespace {

// The rate of a way that was not measured; not set if none was.
LinkRate GuessRate(const LinkRates& rates, int from, int to) {
  if (rates[to][from].is_set()) return rates[to][from];
  LinkRate near, anywhere;
  for (int a = 0; a < static_cast<int>(rates.size()); ++a) {
    for (int b = 0; b < static_cast<int>(rates.size()); ++b) {
      anywhere = SlowerOf(anywhere, rates[a][b]);
      if (a == from || a == to || b == from || b == to) near = SlowerOf(near, rates[a][b]);
    }
  }
  return near.is_set() ? near : anywhere;
}

}  // namespace

void RecordLinkRates(const std::vector<StageStatus>& stages, size_t devices, LinkRates& rates) {
  const auto record = [&](int from, int to, double bytes_per_second) {
    if (bytes_per_second <= 0) return;
    if (rates.empty()) rates.assign(devices, std::vector<LinkRate>(devices));
    rates[from][to] = LinkRate::BytesPerSecond(bytes_per_second);
  };
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    const int above = stages[i].plan.device.value();
    const int below = stages[i + 1].plan.device.value();
    record(above, below, stages[i + 1].telemetry.upstream_bytes_per_second);
    record(below, above, stages[i].telemetry.downstream_bytes_per_second);
  }
}

LinkRates RatesOfPaths(const std::vector<DeviceFacts>& devices) {
  LinkRates rates;
  for (size_t i = 1; i < devices.size(); ++i) {
    const PathRates& path = devices[i].path;
    if (!path.down.is_set() && !path.up.is_set()) continue;
    if (rates.empty()) rates.assign(devices.size(), std::vector<LinkRate>(devices.size()));
    rates[0][i] = path.down;
    rates[i][0] = path.up;
  }
  return rates;
}

LinkRates ScaleRates(LinkRates rates, double factor) {
  for (std::vector<LinkRate>& row : rates) {
    for (LinkRate& rate : row) rate = rate * factor;
  }
  return rates;
}

std::vector<std::vector<LinkSpeed>> SpeedsOf(const LinkRates& rates,
                                             const std::vector<int>& devices,
                                             const LinkSpeed& given) {
  std::vector<std::vector<LinkSpeed>> speeds(devices.size(),
                                             std::vector<LinkSpeed>(devices.size(), given));
  if (rates.empty()) return speeds;
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = 0; j < devices.size(); ++j) {
      if (i == j) continue;
      LinkRate rate = rates[devices[i]][devices[j]];
      if (!rate.is_set() && !given.rate.is_set()) rate = GuessRate(rates, devices[i], devices[j]);
      if (rate.is_set()) speeds[i][j].rate = rate;
    }
  }
  return speeds;
}

}  // namespace runnel
