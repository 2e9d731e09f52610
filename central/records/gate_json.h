#pragma once

#include <vector>

#include "central/records/gate_summary.h"
#include "proto/json/json_fields.h"

namespace runnel {

// By pass.
Json ToJson(const PassMacs& macs);
Json ToJson(const std::vector<GateSummary::Gate>& gates);
Json ToJson(const std::vector<GateSummary::Target>& targets);
Json ToJson(const GateSummary& gates);

}  // namespace runnel
