#include "worker/tune/stage_tuning.h"

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

void Say(Logger* logger, Severity severity, const std::string& line) {
  if (logger != nullptr) logger->Log(severity, line);
}

}  // namespace

void AdoptTunings(Backend& backend, const TuningStore& store, Logger* logger) {
  Tuner* tuner = backend.tuner();
  if (tuner == nullptr) return;
  const KeptTunings kept = store.Find(tuner->subject());
  for (const std::string& complaint : kept.complaints) Say(logger, Severity::kWarning, complaint);
  tuner->Adopt(kept.same, /*is_checked=*/true);
  tuner->Adopt(kept.family, /*is_checked=*/false);
}

StageTuning::StageTuning(Backend& backend, const TuningStore& store, Logger* logger)
    : tuner_(backend.tuner()), store_(store), logger_(logger) {
  if (tuner_ == nullptr) return;
  known_ = tuner_->choices().size();
  specification_ = MakeBackend("ref", 1).value();
  tuner_->BeginSearch(tuner_->usual_seconds(), /*anew=*/false, specification_.get());
}

StageTuning::~StageTuning() {
  if (tuner_ == nullptr) return;
  tuner_->EndSearch();
  const std::vector<TuningChoice> choices = tuner_->choices();
  if (choices.size() == known_) return;
  const TuningSubject subject = tuner_->subject();
  Say(logger_, Severity::kInfo,
      absl::StrCat("backend ", subject.backend, ": tuned ", choices.size() - known_,
                   " kinds of products on ", subject.device));
  const absl::Status kept = store_.Keep(subject, choices);
  if (!kept.ok()) {
    Say(logger_, Severity::kWarning,
        absl::StrCat("tunings are not kept, the next run tunes again: ", kept.message()));
  }
}

}  // namespace runnel
