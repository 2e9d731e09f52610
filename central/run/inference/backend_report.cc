#include "central/run/inference/backend_report.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/records/quantized_model.h"
#include "central/run/inference/inference_process.h"
#include "partition/schedule.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<std::string> BackendReport(const ModelSpec& model, const CheckedTraining& training) {
  const RunSettings settings;
  RUNNEL_ASSIGN_OR_RETURN(
      const ScheduleRow* schedule,
      FindSchedule(training.schedule.empty() ? settings.schedule : training.schedule));
  RUNNEL_ASSIGN_OR_RETURN(const std::string job,
                          FitJob(model, training.recipe, TrainingSettings().optimizer,
                                 schedule->default_micro_batches > 1));
  RUNNEL_ASSIGN_OR_RETURN(const InferenceReply reply,
                          RunInferenceProcess(job, {settings.worker_threads}));
  std::vector<std::string> able;
  std::string text;
  for (const BackendFit& fit : reply.fits) {
    if (fit.why_not.empty()) {
      able.push_back(fit.backend);
      continue;
    }
    const std::string name = absl::StrCat("backend ", fit.backend, ": ");
    absl::StrAppend(&text, "\nnot by ", absl::StartsWith(fit.why_not, name) ? "" : name,
                    fit.why_not);
  }
  return absl::StrCat("backends of this host that can train it by recipe ", training.recipe, ": ",
                      able.empty() ? "none" : absl::StrJoin(able, ", "), text);
}

}  // namespace runnel
