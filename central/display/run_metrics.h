#pragma once

// A running training as metrics. Those of stages and links are the rows of FigureFields. All follow
// from what is shown: a worker, stage or link that is gone has none any more.

#include <string>

#include "central/display/run_history.h"

namespace runnel {

// In Prometheus' text format.
std::string MetricsText(const ShownRun& run);

}  // namespace runnel
