#pragma once

// --links FILE: the user's figures of links, by names of devices.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/json/json_fields.h"
#include "central/planning/barrier_report.h"
#include "central/planning/measured/link_rates.h"
#include "partition/scenario.h"

namespace runnel {

// Reads one link of a scenario or of --links. InvalidArgument names the key that is missing,
// unknown, of the wrong type or below 0.
absl::StatusOr<ScenarioLink> ScenarioLinkFromJson(const Json& json);

// The links of a file: {"links": [{"from", "to", "down_mbps", "up_mbps", "delay_ms"}, ...]}, as a
// scenario has them; "central" is any worker on central's host, "*" any device. Later entries win.
// InvalidArgument names the error and its place; others as ReadWholeFile.
absl::StatusOr<std::vector<ScenarioLink>> ReadGivenLinks(const std::string& path);

// InvalidArgument names an end that is no device of the run, and those that there are.
absl::Status CheckGivenLinks(const std::vector<ScenarioLink>& links,
                             const std::vector<DeviceFacts>& devices);

// Writes the given figures of each direction between two devices into `rates`. rate_share: share of
// a given bandwidth that frames get. A bandwidth of 0 is no limit.
void SetGivenWays(const std::vector<ScenarioLink>& links, const std::vector<DeviceFacts>& devices,
                  double rate_share, LinkRates& rates);

// Whether the links give both ways between central's host and this device.
bool GivesPath(const std::vector<ScenarioLink>& links, const std::vector<DeviceFacts>& devices,
               int device);

}  // namespace runnel
