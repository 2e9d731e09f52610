#include "central/run/trained_weights.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/weight_average.h"

namespace runnel {

absl::StatusOr<ReadableCheckpoint> NewestCheckpoint(const std::string& directory, Logger* logger) {
  RUNNEL_ASSIGN_OR_RETURN(ReadableCheckpoint newest, ReadLatestCheckpoint(directory));
  for (const std::string& damaged : newest.damaged) {
    logger->Log(Severity::kWarning, absl::StrCat(damaged, "; using the one before, ", newest.path));
  }
  return newest;
}

namespace {

absl::StatusOr<Checkpoint> NewestOf(const std::string& directory, Logger* logger) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(directory, ignored)) return ReadCheckpoint(directory);
  const std::string final_path = (std::filesystem::path(directory) / "final.runnel").string();
  absl::StatusOr<ReadableCheckpoint> resumable = NewestCheckpoint(directory, logger);
  if (!std::filesystem::exists(final_path, ignored)) {
    RUNNEL_RETURN_IF_ERROR(resumable.status());
    return std::move(resumable->checkpoint);
  }
  absl::StatusOr<Checkpoint> final = ReadCheckpoint(final_path);
  if (!resumable.ok()) return final;
  if (absl::IsDataLoss(final.status())) {
    logger->Log(Severity::kWarning,
                absl::StrCat(final.status().message(), "; using ", resumable->path));
    return std::move(resumable->checkpoint);
  }
  RUNNEL_RETURN_IF_ERROR(final.status());
  return resumable->checkpoint.step >= final->step ? std::move(resumable->checkpoint)
                                                   : *std::move(final);
}

}  // namespace

absl::StatusOr<Checkpoint> NewestWeights(const std::string& directory, Logger* logger) {
  absl::StatusOr<Checkpoint> newest = NewestOf(directory, logger);
  if (!newest.ok()) return newest;
  TakeAverages(newest->state);
  DropAverage(newest->settings.training);
  DropAverage(newest->training);
  return newest;
}

absl::Status CheckModel(const std::string& model_sha256, const RunSetup& setup,
                        const std::string& where) {
  if (model_sha256 == ModelSha256(setup.model)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ": its model ", setup.settings.model,
                                                 " is not this release's ", setup.model.name));
}

RunSettings WithoutTraining(RunSettings settings) {
  settings.local_workers = 0;
  settings.workers = 0;
  settings.at_least.reset();
  settings.caps.clear();
  settings.checkpoint_dir.clear();
  settings.journal.clear();
  settings.log.clear();
  settings.tensorboard.clear();
  settings.report.clear();
  settings.metrics_port.reset();
  settings.early_stop = 0;
  settings.validation_share = 0;
  DropAverage(settings.training);
  settings.eval_every = std::max<int64_t>(settings.eval_every, 0);  // never: only while it trained
  return settings;
}

}  // namespace runnel
