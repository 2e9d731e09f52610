#include "central/records/shown_figures.h"

namespace runnel {
namespace {

void AddViews(const FigureField& field, const Telemetry& telemetry, const FigureBase& base,
              std::vector<ShownFigure>& figures) {
  for (const FigureView& view : field.views) {
    if (view.key == nullptr && view.metric == nullptr) continue;
    figures.push_back({&field, &view, ShownValue(field, view, telemetry, base), &telemetry});
  }
}

}  // namespace

RunFigures SummariseStages(const Plan& plan, const std::vector<StageStatus>& stages,
                           int64_t training_ns, const std::vector<int64_t>& samples) {
  RunFigures figures;
  for (size_t i = 0; i < plan.links.size() && i + 1 < stages.size(); ++i) {
    figures.links.push_back({plan.links[i].codec_forward.text(),
                             plan.links[i].codec_backward.text(), stages[i].telemetry,
                             stages[i + 1].telemetry, stages[i + 1].relayed});
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    figures.stages.push_back(
        {stages[i].telemetry, {training_ns, i < samples.size() ? samples[i] : 0}});
  }
  return figures;
}

std::vector<ShownFigure> FiguresOf(const StageSummary& stage) {
  std::vector<ShownFigure> figures;
  for (const FigureField& field : FigureFields()) {
    if (!IsOfLink(field.of)) AddViews(field, stage.telemetry, stage.base, figures);
  }
  return figures;
}

std::vector<ShownFigure> FiguresOf(const LinkSummary& link) {
  std::vector<ShownFigure> figures;
  for (const FigureField& field : FigureFields()) {
    if (!IsOfLink(field.of)) continue;
    AddViews(field, IsOfAbove(field.of) ? link.above : link.below, {}, figures);
  }
  return figures;
}

}  // namespace runnel
