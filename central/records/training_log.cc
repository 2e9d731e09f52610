#include "central/records/training_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "central/records/log_forms.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
// TensorBoard takes every file of the folder with such a name.
constexpr char kEventFile[] = "/events.out.tfevents.runnel";

bool IsThere(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

// As messages name it.
std::string Flag(const std::string& path) {
  if (!absl::EndsWith(path, kEventFile)) return absl::StrCat("--log ", path);
  return absl::StrCat("--tensorboard ", path.substr(0, path.size() - sizeof(kEventFile) + 1));
}

}  // namespace

absl::Status TrainingLog::CheckName(absl::string_view path) {
  if (absl::EndsWith(path, ".csv") || absl::EndsWith(path, ".jsonl")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--log ", path, ": its name must end in .csv or .jsonl, which says the form"));
}

std::vector<std::string> TrainingLog::Files(const std::string& log,
                                            const std::string& tensorboard) {
  std::vector<std::string> files;
  if (!log.empty()) files.push_back(log);
  if (!tensorboard.empty()) files.push_back(tensorboard + kEventFile);
  return files;
}

absl::StatusOr<TrainingLog> TrainingLog::Create(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (!IsThere(path)) continue;
    RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
    absl::string_view rest = text;
    while (!rest.empty()) {
      const absl::StatusOr<LogRecord> record = LogFormOf(path)->next(rest);
      if (!record.ok() || record->place.has_value() || record->bytes == 0) {
        return absl::AlreadyExistsError(
            absl::StrCat(Flag(path), ": has rows already; name another ",
                         absl::EndsWith(path, kEventFile) ? "folder" : "file"));
      }
      rest.remove_prefix(record->bytes);
    }
  }
  return Continue(paths, 0);
}

absl::StatusOr<TrainingLog> TrainingLog::Continue(const std::vector<std::string>& paths,
                                                  int64_t step) {
  for (const std::string& path : paths) {
    if (IsThere(path)) continue;
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, error);
    RUNNEL_RETURN_IF_ERROR(WriteFileAtomically(path, {LogFormOf(path)->head()}));
  }
  TrainingLog log(paths);
  RUNNEL_RETURN_IF_ERROR(log.GoBackTo(step));
  return log;
}

absl::Status TrainingLog::Append(const LogRow& row) {
  for (const std::string& path : paths_) {
    const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return FileError("open", path, errno);
    const absl::Status written = WriteAll(fd, LogFormOf(path)->record(row), path);
    close(fd);
    RUNNEL_RETURN_IF_ERROR(written);
  }
  seconds_ = std::max(seconds_, row.seconds);
  return absl::OkStatus();
}

absl::StatusOr<double> TrainingLog::CutBehind(const std::string& path, int64_t step) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  const LogForm& form = *LogFormOf(path);
  std::string kept;
  double seconds = 0;
  int64_t number = 0;
  for (absl::string_view rest = text; !rest.empty();) {
    ++number;
    const absl::StatusOr<LogRecord> record = form.next(rest);
    if (!record.ok()) {
      return absl::DataLossError(absl::StrCat(Flag(path), ": ", form.unit, " ", number,
                                              " is no row of a training log; name another file"));
    }
    // The last one of a central that was killed may be half there.
    if (record->bytes == 0) break;
    const bool stays = !record->place.has_value() || record->place->step <= step;
    if (stays) absl::StrAppend(&kept, rest.substr(0, record->bytes));
    if (stays && record->place.has_value()) seconds = std::max(seconds, record->place->seconds);
    rest.remove_prefix(record->bytes);
  }
  if (kept.empty()) kept = form.head();
  RUNNEL_RETURN_IF_ERROR(WriteFileAtomically(path, {kept}));
  return seconds;
}

absl::Status TrainingLog::GoBackTo(int64_t step) {
  seconds_ = 0;
  for (const std::string& path : paths_) {
    RUNNEL_ASSIGN_OR_RETURN(const double seconds, CutBehind(path, step));
    seconds_ = std::max(seconds_, seconds);
  }
  return absl::OkStatus();
}

}  // namespace runnel
