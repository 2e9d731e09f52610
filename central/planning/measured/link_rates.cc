#include "central/planning/measured/link_rates.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace runnel {
namespace {

// A ping and its answer, each way: frame, and the headers of its packet (round_trip.h).
constexpr double kPingBytes = 150;

// Share of an idle direction's deviation that is forgotten at each report.
constexpr double kForgottenShare = 0.1;
// Between two workers of central's host, of which paths to other hosts say nothing.
constexpr WayFigures kWithinHost = {LinkRate::Mbps(100'000), 0.0};

std::optional<double> LongerOf(std::optional<double> a, std::optional<double> b) {
  return a.has_value() && b.has_value() ? std::max(a, b) : a.has_value() ? a : b;
}

WayFigures WorseOf(const WayFigures& a, const WayFigures& b) {
  return {SlowerOf(a.rate, b.rate), LongerOf(a.delay_seconds, b.delay_seconds)};
}

// `known`, completed from `guess`.
WayFigures Completed(WayFigures known, const WayFigures& guess) {
  if (!known.rate.is_set()) known.rate = guess.rate;
  if (!known.delay_seconds.has_value()) known.delay_seconds = guess.delay_seconds;
  return known;
}

// Figures for a direction that was not measured; none if no direction was.
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

LinkRate FastestNear(const LinkRates& rates, int from, int to) {
  LinkRate fastest = rates[from][to].rate;
  for (int a = 0; a < static_cast<int>(rates.size()); ++a) {
    for (int b = 0; b < static_cast<int>(rates.size()); ++b) {
      const bool is_near = a == from || a == to || b == from || b == to;
      if (is_near && rates[a][b].rate.mbps() > fastest.mbps()) fastest = rates[a][b].rate;
    }
  }
  return fastest;
}

LinkSpeed SpeedOf(const WayFigures& measured, const WayFigures& guess, const LinkSpeed& given) {
  LinkSpeed speed;
  speed.rate = measured.rate.is_set() ? measured.rate : SlowerOf(guess.rate, given.rate);
  speed.delay_seconds = measured.delay_seconds.value_or(
      std::max(guess.delay_seconds.value_or(0), given.delay_seconds));
  speed.medium = measured.medium;
  return speed;
}

// Sets half of a link's round trip, less the ping's own time on the bandwidth each way.
void SetDelay(int64_t round_trip_ns, WayFigures& down, WayFigures& up) {
  const double sending = down.rate.Seconds(kPingBytes) + up.rate.Seconds(kPingBytes);
  const double delay = std::max(0.0, static_cast<double>(round_trip_ns) * 1e-9 - sending) / 2;
  down.delay_seconds = up.delay_seconds = delay;
}

// The number of the medium of one way; media that are not radios are one each way.
int MediumOf(const PathFigures& path, bool is_up) {
  return path.medium < 0 ? -1 : 2 * path.medium + (is_up && !path.half_duplex ? 1 : 0);
}

// Medium of relayed links where central's paths were not probed; no other medium has this number.
constexpr int kCentralMedium = 1 << 20;

// Medium of a relayed direction: the one from central to `to`, since a home's bottleneck is its
// uplink.
int MediumOfRelayed(const DeviceFacts& from, const DeviceFacts& to) {
  if (to.path.medium >= 0) return MediumOf(to.path, /*is_up=*/false);
  if (from.path.medium >= 0) return MediumOf(from.path, /*is_up=*/true);
  const bool are_probed = from.path.up.rate.is_set() && to.path.down.rate.is_set();
  return are_probed ? -1 : kCentralMedium;
}

bool AreOnOneRadio(const DeviceFacts& a, const DeviceFacts& b) {
  return a.path.half_duplex && a.path.medium >= 0 && a.path.medium == b.path.medium;
}

// The devices at the ends of the link from stage `upper` to the next.
std::pair<int, int> EndsOfLink(const std::vector<StageStatus>& stages, size_t upper) {
  return {stages[upper].plan.sole_device(), stages[upper + 1].plan.sole_device()};
}

// The link between the stages on these devices is relayed now; none: the plan has no such link.
std::optional<bool> IsRelayed(const std::vector<StageStatus>& stages, int a, int b) {
  for (size_t i = 1; i < stages.size(); ++i) {
    const auto [above, below] = EndsOfLink(stages, i - 1);
    if ((above == a && below == b) || (above == b && below == a)) return stages[i].relayed;
  }
  return std::nullopt;
}

// Number of directions of these stages' links on the medium.
int WaysOn(const std::vector<StageStatus>& stages, const LinkRates& rates, int medium) {
  int ways = 0;
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    const auto [above, below] = EndsOfLink(stages, i);
    ways += rates[above][below].medium == medium ? 1 : 0;
    ways += rates[below][above].medium == medium ? 1 : 0;
  }
  return ways;
}

// Sets a rate that was measured while others may have sent on the medium. The rate by itself is at
// least this, and at most this times the number of directions that send there.
void SetRate(const std::vector<StageStatus>& stages, LinkRate measured, int from, int to,
             LinkRates& rates) {
  if (!measured.is_set()) return;
  WayFigures& way = rates[from][to];
  if (way.medium < 0 || !way.rate.is_set()) {
    way.rate = measured;
    return;
  }
  const LinkRate most = measured * WaysOn(stages, rates, way.medium);
  way.rate = LinkRate::Mbps(std::max(measured.mbps(), std::min(way.rate.mbps(), most.mbps())));
}

}  // namespace

std::vector<SharedMedium> MediaOf(const std::vector<DeviceFacts>& devices) {
  std::vector<SharedMedium> media;
  for (size_t i = 0; i < devices.size(); ++i) {
    const PathFigures& path = devices[i].path;
    if (path.medium < 0) continue;
    media.resize(std::max(media.size(), static_cast<size_t>(path.medium) + 1));
    SharedMedium& medium = media[static_cast<size_t>(path.medium)];
    medium.devices.push_back(static_cast<int>(i));
    medium.half_duplex = path.half_duplex;
    for (const LinkRate rate : {path.down.rate, path.up.rate}) {
      if (rate.mbps() > medium.rate.mbps()) medium.rate = rate;
    }
  }
  return media;
}

std::string MediaText(const std::vector<SharedMedium>& media,
                      const std::vector<DeviceFacts>& devices) {
  std::vector<std::string> texts;
  for (const SharedMedium& medium : media) {
    std::vector<std::string> names;
    for (const int device : medium.devices)
      names.push_back(devices[static_cast<size_t>(device)].name);
    const bool is_one = names.size() == 1;
    const std::string last = names.back();
    names.pop_back();
    texts.push_back(absl::StrFormat(
        "%s %s %.3g Mbps, %s",
        is_one ? absl::StrCat("the link of ", last)
               : absl::StrCat("links of ", absl::StrJoin(names, ", "), " and ", last),
        is_one ? "has" : "share", medium.rate.mbps(),
        medium.half_duplex ? "both ways together" : "each way by itself"));
  }
  return absl::StrJoin(texts, "; ");
}

void RecordLinkRates(const std::vector<StageStatus>& stages, size_t devices, LinkRates& rates) {
  for (size_t i = 0; i + 1 < stages.size(); ++i) {
    const auto [above, below] = EndsOfLink(stages, i);
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
    SetRate(stages, down, above, below, rates);
    SetRate(stages, up, below, above, rates);
    if (round_trip_ns > 0) SetDelay(round_trip_ns, rates[above][below], rates[below][above]);
  }
}

void SetRelayedWays(const std::vector<StageStatus>& stages, const std::vector<DeviceFacts>& devices,
                    LinkRates& rates) {
  for (size_t a = 0; a < devices.size(); ++a) {
    for (size_t b = a + 1; b < devices.size(); ++b) {
      // Paths to devices on central's host were probed as such.
      if (devices[a].is_local || devices[b].is_local || AreOnOneRadio(devices[a], devices[b]))
        continue;
      std::optional<bool> is_relayed = IsRelayed(stages, static_cast<int>(a), static_cast<int>(b));
      if (!devices[a].is_dialable && !devices[b].is_dialable) is_relayed = true;
      if (!is_relayed.has_value() || (!*is_relayed && rates.empty())) continue;
      if (rates.empty()) rates.assign(devices.size(), std::vector<WayFigures>(devices.size()));
      rates[a][b].medium = *is_relayed ? MediumOfRelayed(devices[a], devices[b]) : -1;
      rates[b][a].medium = *is_relayed ? MediumOfRelayed(devices[b], devices[a]) : -1;
    }
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
      if (i == local) continue;
      const bool both = devices[i].is_local;
      rates[local][i] = both ? kWithinHost : devices[i].path.down;
      rates[i][local] = both ? kWithinHost : devices[i].path.up;
      rates[local][i].medium = MediumOf(devices[i].path, /*is_up=*/false);
      rates[i][local].medium = MediumOf(devices[i].path, /*is_up=*/true);
    }
  }
  // Stations of one radio reach each other over it.
  for (size_t i = 0; i < devices.size(); ++i) {
    for (size_t j = 0; j < devices.size(); ++j) {
      const PathFigures& one = devices[i].path;
      const bool are_stations = i != j && one.half_duplex && one.medium == devices[j].path.medium;
      if (are_stations) rates[i][j].medium = MediumOf(one, /*is_up=*/false);
    }
  }
  for (std::vector<WayFigures>& row : rates) {
    for (WayFigures& way : row) {
      if (way.delay_seconds.has_value()) *way.delay_seconds += added_delay_seconds;
    }
  }
  return rates;
}

void RecordPaths(const std::vector<DeviceFacts>& devices, const std::vector<int>& measured,
                 double added_delay_seconds, LinkRates& rates) {
  const LinkRates fresh = RatesOfPaths(devices, added_delay_seconds);
  if (fresh.empty()) return;
  if (rates.empty()) rates.assign(devices.size(), std::vector<WayFigures>(devices.size()));
  const auto record = [&](size_t from, size_t to) {
    rates[from][to] = Completed(fresh[from][to], rates[from][to]);
  };
  for (size_t local = 0; local < devices.size(); ++local) {
    if (!devices[local].is_local) continue;
    for (const int device : measured) {
      record(local, static_cast<size_t>(device));
      record(static_cast<size_t>(device), local);
    }
  }
}

void ForgetIdleWays(const std::vector<StageStatus>& stages, const LinkRates& first,
                    const std::vector<int>& refusals, LinkRates& rates) {
  constexpr int kMostHalvings = 8;
  const LinkRates before = rates;
  const auto is_used = [&stages](int from, int to) {
    for (size_t i = 0; i + 1 < stages.size(); ++i) {
      const auto [above, below] = EndsOfLink(stages, i);
      if ((above == from && below == to) || (above == to && below == from)) return true;
    }
    return false;
  };
  const auto devices = static_cast<int>(rates.size());
  for (int from = 0; from < devices; ++from) {
    for (int to = 0; to < devices; ++to) {
      LinkRate& rate = rates[from][to].rate;
      if (!rate.is_set() || is_used(from, to)) continue;
      const bool has_first = !first.empty() && first[from][to].rate.is_set();
      const LinkRate target = has_first ? first[from][to].rate : FastestNear(before, from, to);
      const int tries = refusals.empty() ? 0 : std::max(refusals[from], refusals[to]);
      const double share = std::ldexp(kForgottenShare, -std::min(tries, kMostHalvings));
      rate = rate * std::pow(target.mbps() / rate.mbps(), share);
    }
  }
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
