#include "central/run/machines/evaluations_beside.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

EvaluationsBeside::Answer EvaluationsBeside::Add(int64_t step, Generation generation,
                                                 const absl::StatusOr<EvaluationFigures>& figures,
                                                 RunEffects& effects) {
  const auto found = under_way_.find(step);
  if (found == under_way_.end() || found->second != generation) return Answer::kIgnored;
  under_way_.erase(found);
  if (figures.ok()) {
    pace_.Took(figures->seconds);
    failed_last_ = false;
    effects.push_back(
        Persist{EvaluationRecorded{step, figures->accuracy, figures->loss, figures->counts}});
    return Answer::kRecorded;
  }
  is_due_ = true;
  if (std::exchange(failed_last_, true)) is_on_ = false;
  effects.push_back(
      LogLine{Severity::kWarning,
              absl::StrCat("step ", step, ": could not be evaluated beside the training (",
                           figures.status().message(),
                           is_on_ ? "); the next barrier is evaluated in its place"
                                  : "); evaluations go through the pipeline from here on")});
  return Answer::kFailed;
}

}  // namespace runnel
