#include "central/records/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/records/weights_digest.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/training_fields.h"
#include "proto/checkpoint.pb.h"
#include "proto/crypto/sealed_file.h"
#include "proto/crypto/sha256.h"
#include "proto/process/atomic_file.h"
#include "proto/transport/control/model_convert.h"

namespace runnel {
namespace {

constexpr SealedFormat kFormat = {"RNLCKPT\n", kCheckpointVersion, "check-point"};
constexpr absl::string_view kPrefix = "checkpoint-";
constexpr absl::string_view kSuffix = ".runnel";
constexpr absl::string_view kFinalName = "final.runnel";
constexpr size_t kStepDigits = 12;
constexpr size_t kKept = 2;

proto::Checkpoint ToMessage(const Checkpoint& checkpoint) {
  proto::Checkpoint message;
  message.set_step(checkpoint.step);
  message.set_resumable(checkpoint.resumable);
  message.set_settings_json(SettingsToJson(checkpoint.settings));
  *message.mutable_model() = ToProto(checkpoint.model);
  *message.mutable_plan() = ToProto(checkpoint.plan);
  *message.mutable_training() = ToProto(checkpoint.training);
  for (const TrainingChange& change : checkpoint.changes) *message.add_changes() = ToProto(change);
  message.mutable_rules()->insert(checkpoint.rules.begin(), checkpoint.rules.end());
  for (const std::string& name : checkpoint.device_names) message.add_device_names(name);
  *message.mutable_state() = ToProto(checkpoint.state);
  message.set_journal(checkpoint.journal);
  message.set_data_text(checkpoint.data_text);
  return message;
}

// Settings of a file written until 2026-11-22.
absl::StatusOr<TrainingSettings> OldTraining(const proto::OldTrainingSettings& old) {
  TrainingSettings settings;
  settings.seed = old.seed();
  settings.dataset_samples = old.dataset_samples();
  settings.batch_size = old.batch_size();
  settings.micro_batches = old.micro_batches();
  settings.min_samples = old.min_samples();
  settings.eval_batch_size = old.eval_batch_size();
  settings.learning_rate = old.learning_rate();
  settings.momentum = old.momentum();
  settings.weight_decay = old.weight_decay();
  settings.milestones.assign(old.milestones().begin(), old.milestones().end());
  settings.milestone_factor = old.milestone_factor();
  settings.look_ahead = old.look_ahead();
  settings.raised_look_ahead = old.raised_look_ahead();
  settings.aggregate_every = old.aggregate_every();
  settings.stale_rate_steps = old.stale_rate_steps();
  for (const proto::OldTrainingSettings::GradientBitsStep& step : old.gradient_bits()) {
    settings.gradient_bits.push_back({step.epoch(), {step.conv(), step.linear()}});
  }
  const absl::Status status = CheckTraining(settings);
  if (status.ok()) return settings;
  return absl::InvalidArgumentError(absl::StrCat("training.", status.message()));
}

absl::Status CheckParts(const Checkpoint& checkpoint) {
  if (checkpoint.step < 0) return absl::InvalidArgumentError("step is below 0");
  RUNNEL_RETURN_IF_ERROR(CheckPlan(checkpoint.plan, checkpoint.model));
  for (const int device : checkpoint.plan.devices()) {
    if (device < 0 || static_cast<size_t>(device) >= checkpoint.device_names.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("device ", device, " of the plan has no name"));
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(checkpoint.settings));
  return CheckState(checkpoint.state, checkpoint.model, 0, checkpoint.model.layer_count() - 1,
                    format);
}

absl::StatusOr<Checkpoint> FromMessage(proto::Checkpoint message) {
  Checkpoint checkpoint;
  checkpoint.step = message.step();
  checkpoint.resumable = message.resumable();
  checkpoint.journal = message.journal();
  checkpoint.data_text = std::move(*message.mutable_data_text());
  checkpoint.device_names.assign(message.device_names().begin(), message.device_names().end());
  RUNNEL_ASSIGN_OR_RETURN(checkpoint.settings, SettingsFromJson(message.settings_json()));
  RUNNEL_ASSIGN_OR_RETURN(checkpoint.model, FromProto(message.model()));
  RUNNEL_ASSIGN_OR_RETURN(checkpoint.plan, FromProto(message.plan()));
  if (message.has_training()) {
    RUNNEL_ASSIGN_OR_RETURN(checkpoint.training, FromProto(message.training()));
  } else {
    RUNNEL_ASSIGN_OR_RETURN(checkpoint.training, OldTraining(message.old_training()));
  }
  RUNNEL_ASSIGN_OR_RETURN(checkpoint.changes, FromProto("changes", message.changes()));
  checkpoint.rules.insert(message.rules().begin(), message.rules().end());
  RUNNEL_ASSIGN_OR_RETURN(checkpoint.state, FromProto(std::move(*message.mutable_state())));
  RUNNEL_RETURN_IF_ERROR(CheckParts(checkpoint));
  return checkpoint;
}

absl::StatusOr<Checkpoint> Decode(absl::string_view content) {
  RUNNEL_ASSIGN_OR_RETURN(const absl::string_view payload, OpenSealed(kFormat, content));
  proto::Checkpoint message;
  if (!message.ParseFromArray(payload.data(), static_cast<int>(payload.size()))) {
    return absl::DataLossError("is damaged: its contents cannot be parsed");
  }
  absl::StatusOr<Checkpoint> checkpoint = FromMessage(std::move(message));
  if (!checkpoint.ok()) {
    return absl::DataLossError(
        absl::StrCat("does not fit itself: ", checkpoint.status().message()));
  }
  return checkpoint;
}

// The step of a resumable check-point's file name.
std::optional<int64_t> StepOfName(absl::string_view name) {
  if (!absl::StartsWith(name, kPrefix) || !absl::EndsWith(name, kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(std::min(name.size(), kSuffix.size()));
  const bool digits =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  int64_t step = 0;
  if (name.size() < kStepDigits || !digits || !absl::SimpleAtoi(name, &step)) return std::nullopt;
  return step;
}

std::string NameOf(const Checkpoint& checkpoint) {
  if (!checkpoint.resumable) return std::string(kFinalName);
  return absl::StrFormat("%s%0*d%s", kPrefix, static_cast<int>(kStepDigits), checkpoint.step,
                         kSuffix);
}

struct Found {
  int64_t step = 0;
  std::string path;
};

// All resumable check-points of a directory, highest step first.
absl::StatusOr<std::vector<Found>> List(const std::string& directory) {
  std::vector<Found> found;
  std::error_code error;
  std::filesystem::directory_iterator at(directory, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::optional<int64_t> step = StepOfName(at->path().filename().string());
    if (step.has_value()) found.push_back({*step, at->path().string()});
  }
  if (error) return FileError("list", directory, error.value());
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.step > b.step; });
  return found;
}

// Removes check-points older than the newest kKept up to `step`. A file that cannot be removed
// costs disk space only.
void RemoveOld(const std::string& directory, int64_t step) {
  const absl::StatusOr<std::vector<Found>> found = List(directory);
  if (!found.ok()) return;
  size_t kept = 0;
  for (const Found& file : *found) {
    if (file.step <= step && ++kept > kKept) unlink(file.path.c_str());
  }
}

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const Checkpoint& checkpoint,
                                            const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return FileError("make check-point directory", directory, error.value());
  const std::string path = absl::StrCat(directory, "/", NameOf(checkpoint));
  const proto::Checkpoint message = ToMessage(checkpoint);
  const size_t bytes = message.ByteSizeLong();
  if (bytes + kSealBytes > static_cast<size_t>(kMaxCheckpointBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("check-point ", path, ": has ", bytes,
                                                   " bytes, more than a file can hold (",
                                                   kMaxCheckpointBytes, ")"));
  }
  const std::string payload = message.SerializeAsString();
  const std::string header = Seal(kFormat, payload);
  if (absl::Status status = WriteFileAtomically(path, {header, payload}); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("check-point not written: ", status.message()));
  }
  if (checkpoint.resumable) RemoveOld(directory, checkpoint.step);
  return path;
}

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(path, kMaxCheckpointBytes));
  absl::StatusOr<Checkpoint> checkpoint = Decode(content);
  if (checkpoint.ok()) return checkpoint;
  return absl::Status(checkpoint.status().code(),
                      absl::StrCat("check-point ", path, " ", checkpoint.status().message()));
}

namespace {

// All resumable check-points, at least one, highest step first.
absl::StatusOr<std::vector<Found>> ListSome(const std::string& directory) {
  absl::StatusOr<std::vector<Found>> found = List(directory);
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(
        absl::StrCat("check-point directory ", directory,
                     " does not exist: give the --checkpoint-dir of the run to go on with"));
  }
  if (!found.ok() || !found->empty()) return found;
  std::error_code error;
  const bool has_final = std::filesystem::exists(absl::StrCat(directory, "/", kFinalName), error);
  return absl::NotFoundError(absl::StrCat(
      "no check-point to resume from in ", directory,
      has_final ? " (its final.runnel holds weights of a run that stopped between barriers)" : "",
      ": start a run with --checkpoint-dir ", directory));
}

}  // namespace

absl::StatusOr<std::string> LatestCheckpoint(const std::string& directory) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<Found> found, ListSome(directory));
  return found.front().path;
}

absl::StatusOr<ReadableCheckpoint> ReadLatestCheckpoint(const std::string& directory) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<Found> found, ListSome(directory));
  ReadableCheckpoint readable;
  absl::Status first_error;
  for (const Found& file : found) {
    absl::StatusOr<Checkpoint> checkpoint = ReadCheckpoint(file.path);
    if (checkpoint.ok()) {
      readable.path = file.path;
      readable.checkpoint = *std::move(checkpoint);
      return readable;
    }
    first_error.Update(checkpoint.status());
    if (!absl::IsDataLoss(checkpoint.status())) break;
    readable.damaged.emplace_back(checkpoint.status().message());
  }
  return first_error;
}

std::string ModelSha256(const ModelSpec& model) {
  return Sha256Hex(ToProto(model).SerializeAsString());
}

bool IsModel(const ModelSpec& model, const TrainingDefaults& defaults, absl::string_view sha256) {
  if (ModelSha256(model) == sha256) return true;
  proto::OldModelDefaults old;
  proto::OldModelDefaults::Defaults& message = *old.mutable_defaults();
  message.set_batch_size(defaults.batch_size);
  message.set_epochs(defaults.epochs);
  message.set_learning_rate(defaults.learning_rate);
  message.set_momentum(defaults.momentum);
  message.set_weight_decay(defaults.weight_decay);
  message.mutable_milestones()->Assign(defaults.milestones.begin(), defaults.milestones.end());
  message.set_milestone_factor(defaults.milestone_factor);
  // The defaults were the model's last field: their bytes follow those of the others.
  return Sha256Hex(ToProto(model).SerializeAsString() + old.SerializeAsString()) == sha256;
}

}  // namespace runnel
