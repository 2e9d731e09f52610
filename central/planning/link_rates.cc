#include "central/planning/link_rates.h"

#include <utility>

namespace runnel {
namespace {

void Lower(double rate, double& least) {
  if (rate > 0 && (least == 0 || rate < least)) least = rate;
}

// Of a way that was not measured; 0 if nothing was.
double Guess(const LinkRates& rates, int from, int to) {
  if (rates[to][from] > 0) return rates[to][from];
  double near = 0, anywhere = 0;
  for (int a = 0; a < static_cast<int>(rates.size()); ++a) {
    for (int b = 0; b < static_cast<int>(rates.size()); ++b) {
      Lower(rates[a][b], anywhere);
      if (a == from || a == to || b == from || b == to) Lower(rates[a][b], near);
    }
  }
  return near > 0 ? near : anywhere;
}

}  // namespace

void NoteLinkRates(const std::vector<StageStatus>& stages, size_t devices, LinkRates& rates) {
  const auto note = [&](int from, int to, double rate) {
    if (rate <= 0) return;
    if (rates.empty()) rates.assign(devices, std::vector<double>(devices, 0));
    rates[from][to] = rate;
  };
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    const int above = stages[i].plan.device.value();
    const int below = stages[i + 1].plan.device.value();
    note(above, below, stages[i + 1].telemetry.upstream_bytes_per_second);
    note(below, above, stages[i].telemetry.downstream_bytes_per_second);
  }
}

LinkRates Scaled(LinkRates rates, double factor) {
  for (std::vector<double>& row : rates) {
    for (double& rate : row) rate *= factor;
  }
  return rates;
}

std::vector<std::vector<LinkSpeed>> SpeedsOf(const LinkRates& rates,
                                             const std::vector<int>& devices,
                                             const LinkSpeed& given) {
  constexpr double kMegabitsPerByte = 8e-6;
  std::vector<std::vector<LinkSpeed>> speeds(devices.size(),
                                             std::vector<LinkSpeed>(devices.size(), given));
  if (rates.empty()) return speeds;
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = 0; j < devices.size(); ++j) {
      if (i == j) continue;
      double rate = rates[devices[i]][devices[j]];
      if (rate == 0 && given.megabits_per_second == 0) rate = Guess(rates, devices[i], devices[j]);
      if (rate > 0) speeds[i][j].megabits_per_second = rate * kMegabitsPerByte;
    }
  }
  return speeds;
}

}  // namespace runnel
