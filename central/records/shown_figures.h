#pragma once

// What the table FigureFields shows of a stage or a link: for the summary, the page and the metrics
// alike.

#include <vector>

#include "central/records/stage_status.h"
#include "central/records/summary.h"
#include "proto/base/figures/figure_fields.h"

namespace runnel {

// One way to show one figure. `telemetry` is that of the summary, which outlives this.
struct ShownFigure {
  const FigureField* field;
  const FigureView* view;
  FigureValue value;
  const Telemetry* telemetry;

  bool is_zero() const { return AsReal(value) == 0; }
};

// A run as it stands.
struct RunFigures {
  std::vector<LinkSummary> links;
  std::vector<StageSummary> stages;
};

// Since the plan holds: training_ns between grants and their barriers, and the samples that each
// stage has trained.
RunFigures SummariseStages(const Plan& plan, const std::vector<StageStatus>& stages,
                           int64_t training_ns, const std::vector<int64_t>& samples);

// In the order of the table.
std::vector<ShownFigure> FiguresOf(const StageSummary& stage);
std::vector<ShownFigure> FiguresOf(const LinkSummary& link);

}  // namespace runnel
