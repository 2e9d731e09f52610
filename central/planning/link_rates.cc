#include "central/planning/link_rates.h"

#include <algorithm>
#include <optional>

namespace runnel {
namespace {

// A ping and its answer, each way: frame, and the headers of its packet (round_trip.h).
constexpr double kPingBytes = 150;

// Between two workers of central's host, of which paths to other hosts say nothing.
constexpr WayFigures kWithinHost = {LinkRate::Mbps(100'000), 0.0};

std::optional<double> LongerOf(std::optional<double> a, std::optional<double> b) {
  return a.has_value() && b.has_value() ? std::max(a, b) : a.has_value() ? a : b;
}

WayFigures WorseOf(const WayFigures& a, const WayFigures& b) {
  return {SlowerOf(a.rate, b.rate), LongerOf(a.delay_seconds, b.delay_seconds)};
}

// `known`, and from `guess` what it lacks.
WayFigures Completed(WayFigures known, const WayFigures& guess) {
  if (!known.rate.is_set()) known.rate = guess.rate;
  if (!known.delay_seconds.has_value()) known.delay_seconds = guess.delay_seconds;
  return known;
}

// Of a way that was not measured; without figures if none was.
WayFigures GuessWay(const LinkRates& rates, int from, int to) {
  WayFigures near, anywhere;
  for (int a = 0; a < static_cast<int>(rates.size()); ++a) {
    for (int b = 0; b < static_cast<int>(rates.size()); ++b) {
      anywhere = WorseOf(anywhere, rates[a][b]);
      if (a == from || a == to || b == from || b == to) near = WorseOf(near, rates[a][b]);
    }
  }
  return Completed(Completed(rates[to][from], near), anywhere);
}

LinkSpeed SpeedOf(const WayFigures& measured, const WayFigures& guess, const LinkSpeed& given) {
  LinkSpeed speed;
  speed.rate = measured.rate.is_set() ? measured.rate : SlowerOf(guess.rate, given.rate);
  speed.delay_seconds = measured.delay_seconds.value_or(
      std::max(guess.delay_seconds.value_or(0), given.delay_seconds));
  return speed;
}

// Half of the round trip of a link, less what the ping takes of the bandwidth each way.
void SetDelay(int64_t round_trip_ns, WayFigures& down, WayFigures& up) {
  const double sending = down.rate.Seconds(kPingBytes) + up.rate.Seconds(kPingBytes);
  const double delay = std::max(0.0, static_cast<double>(round_trip_ns) * 1e-9 - sending) / 2;
  down.delay_seconds = up.delay_seconds = delay;
}

}  // namespace

void RecordLinkRates(const std::vector<StageStatus>& stages, size_t devices, LinkRates& rates) {
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    const int above = stages[i].plan.device.value();
    const int below = stages[i + 1].plan.device.value();
    const Telemetry& upper = stages[i].telemetry;
    const Telemetry& lower = stages[i + 1].telemetry;
    const LinkRate down = LinkRate::BytesPerSecond(lower.upstream_bytes_per_second);
    const LinkRate up = LinkRate::BytesPerSecond(upper.downstream_bytes_per_second);
    const bool has_both = upper.downstream_round_trip_ns > 0 && lower.upstream_round_trip_ns > 0;
    const int64_t round_trip_ns =
        has_both ? std::min(upper.downstream_round_trip_ns, lower.upstream_round_trip_ns)
                 : std::max(upper.downstream_round_trip_ns, lower.upstream_round_trip_ns);
    if (!down.is_set() && !up.is_set() && round_trip_ns == 0) continue;
    if (rates.empty()) rates.assign(devices, std::vector<WayFigures>(devices));
    if (down.is_set()) rates[above][below].rate = down;
    if (up.is_set()) rates[below][above].rate = up;
    if (round_trip_ns > 0) SetDelay(round_trip_ns, rates[above][below], rates[below][above]);
  }
}

LinkRates RatesOfPaths(const std::vector<DeviceFacts>& devices, double added_delay_seconds) {
  const auto is_measured = [](const DeviceFacts& device) {
    return device.path.down.rate.is_set() || device.path.up.rate.is_set() ||
           device.path.down.delay_seconds.has_value();
  };
  if (std::none_of(devices.begin(), devices.end(), is_measured)) return {};
  LinkRates rates(devices.size(), std::vector<WayFigures>(devices.size()));
  for (size_t local = 0; local < devices.size(); ++local) {
    if (!devices[local].is_local) continue;
    for (size_t i = 0; i < devices.size(); ++i) {
      const bool both = devices[i].is_local;
      rates[local][i] = both ? kWithinHost : devices[i].path.down;
      rates[i][local] = both ? kWithinHost : devices[i].path.up;
    }
  }
  for (std::vector<WayFigures>& row : rates) {
    for (WayFigures& way : row) {
      if (way.delay_seconds.has_value()) *way.delay_seconds += added_delay_seconds;
    }
  }
  return rates;
}

LinkRates ScaleRates(LinkRates rates, double factor) {
  for (std::vector<WayFigures>& row : rates) {
    for (WayFigures& way : row) way.rate = way.rate * factor;
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
      const int from = devices[i], to = devices[j];
      speeds[i][j] = SpeedOf(rates[from][to], GuessWay(rates, from, to), given);
    }
  }
  return speeds;
}

}  // namespace runnel
