#pragma once

// Keeps a run to one central at a time, by the folder of its check-points. `lock` there is locked
// for as long as the central lives; `central.json` names the last central. Where locks do not hold
// (a copied folder, or a disk of several hosts), the number of central's life does: it rises with
// each central that goes on with the run, workers obey no lower one, and a central that finds a
// higher one writes no more.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/ids.h"
#include "proto/process/file_lock.h"

namespace runnel {

class RunClaim {
 public:
  // A new run. The folder is made if it is missing; empty: the run leaves no check-points, and
  // nobody else can have it. AlreadyExists: "check-point folder X/lock is in use by process N".
  // Others as proto/process/atomic_file.h.
  static absl::StatusOr<RunClaim> Begin(const std::string& folder);
  // The run of a folder that is there. A folder without central.json is of an older release. Errors
  // as Begin; DataLoss: central.json cannot be read.
  static absl::StatusOr<RunClaim> Continue(const std::string& folder);

  // The same in all lives of a run.
  const std::string& run() const { return run_; }
  int64_t life() const { return life_; }
  // Aborted: another central has gone on with the run since. Any thread.
  absl::Status CheckHeld() const;

 private:
  RunClaim(std::string folder, std::optional<FileLock> lock, std::string run, int64_t life)
      : folder_(std::move(folder)), lock_(std::move(lock)), run_(std::move(run)), life_(life) {}
  absl::Status Write() const;

  std::string folder_;
  std::optional<FileLock> lock_;
  std::string run_;
  int64_t life_;
};

// First generation of a central that goes on, in this life, from a check-point whose plan had that
// generation: above all generations of earlier lives. They may have made plans after the
// check-point, of which nothing is left; none has made so many.
inline constexpr int32_t kGenerationsOfALife = 1 << 16;
Generation FirstGeneration(int64_t life, Generation of_checkpoint);

}  // namespace runnel
