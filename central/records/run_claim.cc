#include "central/records/run_claim.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/json/json_fields.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/sha256.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = 4096;
constexpr size_t kRunBytes = 8;

std::string PathOf(const std::string& folder) { return absl::StrCat(folder, "/central.json"); }
std::string NewRun() { return absl::BytesToHexString(RandomBytes(kRunBytes)); }

struct LastLife {
  std::string run;
  int64_t life = 0;
};

// NotFound: nobody has said.
absl::StatusOr<LastLife> ReadLast(const std::string& folder) {
  const std::string path = PathOf(folder);
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  LastLife last;
  absl::Status status;
  if (const absl::StatusOr<Json> json = ParseJson(text); json.ok()) {
    JsonObject object(*json, "central");
    object.Read("run", last.run).Read("life", last.life);
    status = object.Finish();
  } else {
    status = json.status();
  }
  if (status.ok()) return last;
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", status.message()));
}

absl::StatusOr<FileLock> TakeLock(const std::string& folder) {
  absl::StatusOr<FileLock> lock = FileLock::Take(absl::StrCat(folder, "/lock"));
  if (lock.ok()) return lock;
  return absl::Status(lock.status().code(),
                      absl::StrCat("check-point folder ", lock.status().message()));
}

// Left by a process that was killed while it wrote.
void SweepTemporaries(const std::string& folder) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_ours = absl::StartsWith(name, "checkpoint-") ||
                         absl::StartsWith(name, "final.runnel") ||
                         absl::StartsWith(name, "central.json");
    if (is_ours && absl::EndsWith(name, ".tmp")) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) unlink(path.c_str());
}

}  // namespace

absl::StatusOr<RunClaim> RunClaim::Begin(const std::string& folder) {
  if (folder.empty()) return RunClaim(folder, std::nullopt, NewRun(), 1);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return FileError("make check-point directory", folder, error.value());
  RUNNEL_ASSIGN_OR_RETURN(FileLock lock, TakeLock(folder));
  SweepTemporaries(folder);
  RunClaim claim(folder, std::move(lock), NewRun(), 1);
  RUNNEL_RETURN_IF_ERROR(claim.Write());
  return claim;
}

absl::StatusOr<RunClaim> RunClaim::Continue(const std::string& folder) {
  RUNNEL_ASSIGN_OR_RETURN(FileLock lock, TakeLock(folder));
  SweepTemporaries(folder);
  absl::StatusOr<LastLife> last = ReadLast(folder);
  if (absl::IsNotFound(last.status())) last = LastLife{NewRun(), 0};
  RUNNEL_RETURN_IF_ERROR(last.status());
  RunClaim claim(folder, std::move(lock), last->run, last->life + 1);
  RUNNEL_RETURN_IF_ERROR(claim.Write());
  return claim;
}

absl::Status RunClaim::Write() const {
  const Json json{{"run", run_}, {"life", life_}};
  return WriteFileAtomically(PathOf(folder_), {absl::StrCat(DumpJson(json), "\n")});
}

absl::Status RunClaim::CheckHeld() const {
  if (folder_.empty()) return absl::OkStatus();
  const absl::StatusOr<LastLife> last = ReadLast(folder_);
  // Somebody who removes it takes the run from nobody.
  if (!last.ok() || (last->run == run_ && last->life <= life_)) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("another central has gone on with this run in ", folder_,
                                         " (life ", last->life, ", this one is ", life_,
                                         "): this one ends"));
}

Generation FirstGeneration(int64_t life, Generation of_checkpoint) {
  const int64_t lives =
      std::min<int64_t>(life, std::numeric_limits<int32_t>::max() / 2 / kGenerationsOfALife);
  const Generation of_life(static_cast<int32_t>(lives * kGenerationsOfALife));
  return std::max(of_life, of_checkpoint.next());
}

}  // namespace runnel
