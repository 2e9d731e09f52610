#include "central/planning/live/given_links.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr int64_t kMaxFileBytes = 16 << 20;
constexpr char kAny[] = "*";
constexpr char kCentral[] = "central";
constexpr LinkRate kNoLimit = LinkRate::Mbps(100'000);

absl::StatusOr<std::vector<ScenarioLink>> LinksFromJson(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  std::vector<ScenarioLink> links;
  JsonObject object(json, "links");
  for (const Json& element : object.Array("links")) {
    RUNNEL_ASSIGN_OR_RETURN(ScenarioLink link, ScenarioLinkFromJson(element));
    links.push_back(std::move(link));
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return links;
}

bool Fits(const std::string& end, const DeviceFacts& device) {
  return end == kAny || end == device.name || (end == kCentral && device.is_local);
}

// The given figures of the direction from `sender` to `receiver`; is_down: where both devices fit
// both ends of a link, the sender counts as its first end.
std::optional<LinkSpeed> GivenWay(const std::vector<ScenarioLink>& links, const DeviceFacts& sender,
                                  const DeviceFacts& receiver, bool is_down) {
  std::optional<LinkSpeed> speed;
  for (const ScenarioLink& link : links) {
    const bool down =
        Fits(link.from, sender) && Fits(link.to, receiver) && (link.from != link.to || is_down);
    const bool up = Fits(link.from, receiver) && Fits(link.to, sender);
    if (down) speed = {link.down, link.delay_ms * 1e-3};
    if (up && !down) speed = {link.up, link.delay_ms * 1e-3};
  }
  return speed;
}

}  // namespace

absl::StatusOr<ScenarioLink> ScenarioLinkFromJson(const Json& json) {
  ScenarioLink link;
  double down_mbps = 0, up_mbps = 0;
  JsonObject object(json, "link");
  object.Read("from", link.from)
      .Read("to", link.to)
      .Read("down_mbps", down_mbps)
      .Read("up_mbps", up_mbps)
      .Read("delay_ms", link.delay_ms);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  for (const double figure : {down_mbps, up_mbps, link.delay_ms}) {
    if (std::isfinite(figure) && figure >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("link ", link.from, " to ", link.to,
                                                   ": bandwidths and delay must be at least 0"));
  }
  link.down = LinkRate::Mbps(down_mbps);
  link.up = LinkRate::Mbps(up_mbps);
  return link;
}

absl::StatusOr<std::vector<ScenarioLink>> ReadGivenLinks(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  absl::StatusOr<std::vector<ScenarioLink>> links = LinksFromJson(text);
  if (links.ok()) return links;
  return absl::Status(links.status().code(), absl::StrCat(path, ": ", links.status().message()));
}

absl::Status CheckGivenLinks(const std::vector<ScenarioLink>& links,
                             const std::vector<DeviceFacts>& devices) {
  const auto name = [](std::string* out, const DeviceFacts& device) {
    absl::StrAppend(out, device.name);
  };
  for (const ScenarioLink& link : links) {
    for (const std::string& end : {link.from, link.to}) {
      const auto is_end = [&end](const DeviceFacts& device) { return Fits(end, device); };
      if (std::any_of(devices.begin(), devices.end(), is_end)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--links: link ", link.from, " to ", link.to, ": '", end,
          "' is no device; give *, central or one of ", absl::StrJoin(devices, ", ", name)));
    }
  }
  return absl::OkStatus();
}

void SetGivenWays(const std::vector<ScenarioLink>& links, const std::vector<DeviceFacts>& devices,
                  double rate_share, LinkRates& rates) {
  for (size_t from = 0; from < devices.size(); ++from) {
    for (size_t to = 0; to < devices.size(); ++to) {
      if (from == to) continue;
      const std::optional<LinkSpeed> speed = GivenWay(links, devices[from], devices[to], from < to);
      if (!speed.has_value()) continue;
      if (rates.empty()) rates.assign(devices.size(), std::vector<WayFigures>(devices.size()));
      rates[from][to] = {speed->rate.is_set() ? speed->rate * rate_share : kNoLimit,
                         speed->delay_seconds};
    }
  }
}

bool GivesPath(const std::vector<ScenarioLink>& links, const std::vector<DeviceFacts>& devices,
               int device) {
  const DeviceFacts& far = devices[static_cast<size_t>(device)];
  return std::any_of(devices.begin(), devices.end(), [&](const DeviceFacts& near) {
    return near.is_local && GivenWay(links, near, far, true).has_value() &&
           GivenWay(links, far, near, false).has_value();
  });
}

}  // namespace runnel
