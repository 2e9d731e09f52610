#include "central/run/commands/result_text.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace runnel {
namespace {

// Empty of a run that was never evaluated.
std::string EvaluationText(const RunSummary& summary) {
  if (summary.evaluations.empty()) return "";
  const int64_t step = summary.evaluations.back().step;
  return absl::StrFormat("accuracy %.2f %%, loss %.4f%s, ", summary.accuracy * 100, summary.loss,
                         step == summary.steps ? "" : absl::StrCat(" after ", step));
}

// Which stage was computed in which numerics class, where they are not all of one; else empty.
std::string SeveralClassesText(const RunSummary& summary) {
  std::set<std::string> classes;
  std::string text;
  for (size_t i = 0; i < summary.stages.size(); ++i) {
    const StagePlan& stage = summary.plan.stages[i];
    classes.insert(summary.stages[i].numerics_class);
    absl::StrAppend(&text, i == 0 ? " (layers " : ", layers ", stage.first_layer, " to ",
                    stage.last_layer, " in ", summary.stages[i].numerics_class);
  }
  return classes.size() < 2 ? "" : absl::StrCat(text, ")");
}

// "38 % of the effective multiply-adds of 8/8 (2.1 % of FP32's): 3/6 for 400 steps, ..."
std::string PrecisionText(const RunSummary& summary) {
  const PrecisionCost& cost = *summary.precision;
  constexpr size_t kMostShown = 8;
  if (cost.gates_learn) return summary.gates.has_value() ? GateText(*summary.gates) : "";
  const double skipped = 100 * (1 - cost.macs_done / cost.macs_in_full);
  if (cost.macs_of_8_8 == cost.macs_in_full)  // FP32
    return absl::StrFormat("gates left out %.1f %% of the multiply-adds", skipped);
  if (cost.share_of_8_8() > 1)  // sixteen bits
    return absl::StrFormat("%.2f %% of FP32's multiply-adds, by bits",
                           100 * cost.effective_share());
  std::string text = absl::StrFormat("%.0f %% of the multiply-adds of 8/8 (%.2f %% of FP32's)",
                                     100 * cost.share_of_8_8(), 100 * cost.effective_share());
  if (skipped > 0) absl::StrAppendFormat(&text, ", gates left out %.1f %%", skipped);
  for (size_t i = 0; i < std::min(cost.levels.size(), kMostShown); ++i) {
    const PrecisionCost::Level& level = cost.levels[i];
    if (level.bits.forward == 0) continue;
    absl::StrAppend(&text, i == 0 ? ": " : ", ", GridBitsText(level.bits), " for ", level.steps,
                    " steps");
  }
  return text;
}

}  // namespace

std::string ResultText(const TrainingOutcome& outcome, const RunSettings& settings,
                       int64_t last_step) {
  const RunSummary& summary = outcome.summary;
  std::string text = absl::StrFormat(
      "%s after %s: %s%.0f samples/s, %.1f s", outcome.stopped_by_user ? "stopped" : "trained",
      summary.stopped_early
          ? absl::StrCat(summary.steps, " of ", last_step, " steps (no better in ",
                         settings.early_stop,
                         settings.early_stop == 1 ? " evaluation)" : " evaluations)")
          : absl::StrCat(summary.steps, " steps"),
      EvaluationText(summary), summary.samples_per_s, summary.wall_s);
  if (summary.test.has_value()) {
    absl::StrAppendFormat(&text, "\ntest set, not looked at before: accuracy %.2f %%, loss %.4f",
                          summary.test->accuracy * 100, summary.test->loss);
  }
  absl::StrAppend(&text, "\nweights ", summary.weights_sha256, SeveralClassesText(summary));
  if (!summary.precision.has_value()) return text;
  const std::string precision = PrecisionText(summary);
  return precision.empty() ? text : absl::StrCat(text, "\n", precision);
}

}  // namespace runnel
