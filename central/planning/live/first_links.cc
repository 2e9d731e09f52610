#include "central/planning/live/first_links.h"

#include "central/planning/live/given_links.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::Status FirstLinks::Set(const LinkInputs& inputs, const std::vector<DeviceFacts>& devices) {
  RUNNEL_RETURN_IF_ERROR(CheckGivenLinks(inputs.ways, devices));
  given_.clear();
  SetGivenWays(inputs.ways, devices, inputs.frame_share, given_);
  rates_ = RatesOfPaths(devices, inputs.given.delay_seconds);
  SetGivenWays(inputs.ways, devices, inputs.frame_share, rates_);
  SetRelayedWays({}, devices, rates_);
  media_ = MediaOf(devices);
  media_text_ = MediaText(media_, devices);
  return absl::OkStatus();
}

void FirstLinks::Grow(size_t devices) {
  GrowRates(devices, rates_);
  GrowRates(devices, given_);
}

std::optional<LinksKnown> FirstLinks::Known() const {
  LinksKnown known;
  for (size_t from = 0; from < rates_.size(); ++from) {
    for (size_t to = 0; to < rates_.size(); ++to) {
      const WayFigures& way = rates_[from][to];
      if (!way.rate.is_set() && !way.delay_seconds.has_value()) continue;
      const bool given = !given_.empty() && given_[from][to].rate.is_set();
      std::optional<double> delay_ms;
      if (way.delay_seconds.has_value()) delay_ms = *way.delay_seconds * 1e3;
      known.ways.push_back({DeviceId(static_cast<int32_t>(from)),
                            DeviceId(static_cast<int32_t>(to)), way.rate.mbps(), delay_ms, given});
    }
  }
  if (known.ways.empty()) return std::nullopt;
  for (const SharedMedium& medium : media_) {
    known.media.push_back({{}, medium.rate.mbps(), medium.half_duplex});
    for (const int device : medium.devices) known.media.back().devices.emplace_back(device);
  }
  return known;
}

void GrowRates(size_t devices, LinkRates& rates) {
  if (rates.empty()) return;
  rates.resize(devices);
  for (std::vector<WayFigures>& row : rates) row.resize(devices);
}

}  // namespace runnel
