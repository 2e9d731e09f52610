#pragma once

// Figures of links and stages from the stages' telemetry, for the summary, the page and the
// metrics.

#include <cstdint>
#include <vector>

#include "central/records/stage_status.h"
#include "central/records/summary.h"

namespace runnel {

// A run as it stands.
struct RunFigures {
  std::vector<LinkSummary> links;
  std::vector<StageSummary> stages;
};

// training_ns: time between grants and their barriers so far; shares are 0 before there is any.
RunFigures FiguresOf(const Plan& plan, const std::vector<StageStatus>& stages, int64_t training_ns);

}  // namespace runnel
