#pragma once

// Check-points: a run's whole state at a barrier, in one file.
//
// The file: the envelope of proto/crypto/sealed_file.h with magic "RNLCKPT\n", then a serialized
// runnel.proto.Checkpoint. Keyed by layer, it resumes on any number of devices.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/settings/run_settings.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/training.h"
#include "proto/base/training/training_change.h"
#include "proto/base/training/training_defaults.h"

namespace runnel {

inline constexpr uint32_t kCheckpointVersion = 1;
// No check-point of ours is larger (protobuf's own limit): checked before anything is allocated.
inline constexpr int64_t kMaxCheckpointBytes = (int64_t{1} << 31) - 1;

struct Checkpoint {
  int64_t step = 0;        // optimizer steps done
  bool resumable = false;  // false: weights of a run that stopped between barriers
  RunSettings settings;
  ModelSpec model;
  Plan plan;
  TrainingSettings training;
  std::vector<TrainingChange> changes;       // decided while it trained, up to `step`
  std::map<std::string, std::string> rules;  // what the rules that decided it had seen, by name
  std::vector<std::string> device_names;     // by device number of the plan
  ModelState state;                          // all layers
  std::string journal;                       // path, for people
  // What it was trained on (central/data/data_description.h); empty: written before 2026-11-27.
  std::string data_text;

  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// Writes `checkpoint` into `directory` (made if it is missing) and returns the file's path:
// "checkpoint-000000000100.runnel" by step if it is resumable, else "final.runnel". On any error
// nothing of the directory has changed and the status names path and cause (disk full:
// ResourceExhausted; no permission: PermissionDenied; over kMaxCheckpointBytes: InvalidArgument).
// After a resumable one all but the newest two resumable ones up to this step are removed; those of
// later steps belong to another course of the run and are left alone. One writer per directory.
absl::StatusOr<std::string> WriteCheckpoint(const Checkpoint& checkpoint,
                                            const std::string& directory);

// Reads and checks a file: sizes before allocation, the digest, and that plan and state fit the
// model. One-line errors that name the path: NotFound, PermissionDenied; InvalidArgument for
// something that is no check-point; DataLoss for one that is truncated or damaged; Unimplemented
// for a newer version.
absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& path);

// The path of the resumable check-point with the highest step. NotFound names the directory and
// what to do if the directory is missing, holds none, or only a final.runnel.
absl::StatusOr<std::string> LatestCheckpoint(const std::string& directory);

// The newest resumable check-point that can be read.
struct ReadableCheckpoint {
  std::string path;
  Checkpoint checkpoint;
  std::vector<std::string> damaged;  // errors of the newer ones, a line each
};
// NotFound as LatestCheckpoint. The newest one's error if none can be read, or if it is not
// DataLoss.
absl::StatusOr<ReadableCheckpoint> ReadLatestCheckpoint(const std::string& directory);

// SHA-256 of the model's serialized runnel.proto.Model: two runs with the same digits train the
// same model.
std::string ModelSha256(const ModelSpec& model);

// Whether `sha256` of a journal is this model's: ModelSha256, or the digest of until 2026-11-22,
// which the model's training defaults were part of.
bool IsModel(const ModelSpec& model, const TrainingDefaults& defaults, absl::string_view sha256);

}  // namespace runnel
