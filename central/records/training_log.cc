#include "central/records/training_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

// The columns, the same in both forms: a new one is a row here.
struct Column {
  const char* name;
  std::optional<double> (*value)(const LogRow& row);
};
constexpr Column kColumns[] = {
    {"step", [](const LogRow& row) { return std::optional<double>(row.step); }},
    {"epoch", [](const LogRow& row) { return std::optional<double>(row.epoch); }},
    {"seconds", [](const LogRow& row) { return std::optional<double>(row.seconds); }},
    {"loss", [](const LogRow& row) { return row.loss; }},
    {"learning_rate", [](const LogRow& row) { return row.learning_rate; }},
    {"samples_per_s", [](const LogRow& row) { return row.samples_per_s; }},
    {"test_accuracy", [](const LogRow& row) { return row.test_accuracy; }},
    {"test_loss", [](const LogRow& row) { return row.test_loss; }},
};
constexpr int kStep = 0, kSeconds = 2;

bool IsCsv(absl::string_view path) { return absl::EndsWith(path, ".csv"); }

std::string Header() {
  return absl::StrCat(absl::StrJoin(kColumns, ",",
                                    [](std::string* out, const Column& column) {
                                      absl::StrAppend(out, column.name);
                                    }),
                      "\n");
}

std::string ToLine(const LogRow& row, bool is_csv) {
  std::vector<std::string> cells;
  for (const Column& column : kColumns) {
    const std::optional<double> value = column.value(row);
    const std::string text = value.has_value() ? absl::StrFormat("%.9g", *value) : "";
    if (is_csv) {
      cells.push_back(text);
    } else if (value.has_value()) {
      cells.push_back(absl::StrCat("\"", column.name, "\": ", text));
    }
  }
  return is_csv ? absl::StrCat(absl::StrJoin(cells, ","), "\n")
                : absl::StrCat("{", absl::StrJoin(cells, ", "), "}\n");
}

// Step and seconds of a row.
struct Place {
  double step = 0;
  double seconds = 0;
};

absl::StatusOr<Place> PlaceOf(absl::string_view line, bool is_csv) {
  Place place;
  if (is_csv) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
    if (cells.size() == std::size(kColumns) && absl::SimpleAtod(cells[kStep], &place.step) &&
        absl::SimpleAtod(cells[kSeconds], &place.seconds)) {
      return place;
    }
    return absl::DataLossError("is no row");
  }
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(line));
  if (!json.is_object() || !json.contains("step") || !json.contains("seconds"))
    return absl::DataLossError("is no row");
  RUNNEL_RETURN_IF_ERROR(ReadValue(json["step"], "step", place.step));
  RUNNEL_RETURN_IF_ERROR(ReadValue(json["seconds"], "seconds", place.seconds));
  return place;
}

}  // namespace

absl::Status TrainingLog::CheckName(absl::string_view path) {
  if (IsCsv(path) || absl::EndsWith(path, ".jsonl")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--log ", path, ": its name must end in .csv or .jsonl, which says the form"));
}

absl::StatusOr<TrainingLog> TrainingLog::Create(const std::string& path) {
  RUNNEL_RETURN_IF_ERROR(CheckName(path));
  if (access(path.c_str(), F_OK) == 0) {
    RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
    if (!text.empty() && text != Header()) {
      return absl::AlreadyExistsError(
          absl::StrCat("--log ", path, ": has rows already; name another file"));
    }
  }
  return Continue(path, 0);
}

absl::StatusOr<TrainingLog> TrainingLog::Continue(const std::string& path, int64_t step) {
  RUNNEL_RETURN_IF_ERROR(CheckName(path));
  TrainingLog log(path);
  if (access(path.c_str(), F_OK) == 0) {
    RUNNEL_RETURN_IF_ERROR(log.GoBackTo(step));
    return log;
  }
  const std::string header = IsCsv(path) ? Header() : "";
  RUNNEL_RETURN_IF_ERROR(WriteFileAtomically(path, {header}));
  return log;
}

absl::Status TrainingLog::Append(const LogRow& row) {
  const int fd = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return FileError("open", path_, errno);
  const absl::Status written = WriteAll(fd, ToLine(row, IsCsv(path_)), path_);
  close(fd);
  if (written.ok()) seconds_ = std::max(seconds_, row.seconds);
  return written;
}

absl::Status TrainingLog::GoBackTo(int64_t step) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path_, kMaxFileBytes));
  const bool is_csv = IsCsv(path_);
  std::string kept = is_csv ? Header() : "";
  seconds_ = 0;
  // The last line of a central that was killed may be half there.
  const size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n');
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text.substr(0, whole), '\n')) {
    ++number;
    if (line.empty() || (is_csv && number == 1)) continue;
    const absl::StatusOr<Place> place = PlaceOf(line, is_csv);
    if (!place.ok()) {
      return absl::DataLossError(absl::StrCat("--log ", path_, ": line ", number,
                                              " is no row of a training log; name another file"));
    }
    if (place->step > static_cast<double>(step)) continue;
    absl::StrAppend(&kept, line, "\n");
    seconds_ = std::max(seconds_, place->seconds);
  }
  return WriteFileAtomically(path_, {kept});
}

}  // namespace runnel
