#pragma once

// The forms of a run's log: each a row of this table, chosen by the file's name. Pure functions.

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "central/records/training_log.h"

namespace runnel {

// A cell of a row: every form writes those that have a value under their name.
struct LogColumn {
  const char* name;
  std::optional<double> (*value)(const LogRow& row);
};
absl::Span<const LogColumn> LogColumns();

// Where a row of a file belongs.
struct LogPlace {
  double step = 0;
  double seconds = 0;
};

// A record at the beginning of a file's rest.
struct LogRecord {
  size_t bytes = 0;               // 0: its end is not there
  std::optional<LogPlace> place;  // none: what stands before the rows
};

struct LogForm {
  absl::string_view unit;  // what one record is called: "line"
  // Before the rows of a new file.
  std::string (*head)();
  std::string (*record)(const LogRow& row);
  // `rest` is not empty. DataLoss: no record of a log.
  absl::StatusOr<LogRecord> (*next)(absl::string_view rest);
};

// .csv, .jsonl; *.tfevents.*, which TensorBoard reads. Null: another name.
const LogForm* LogFormOf(absl::string_view path);

// TensorBoard's.
std::string EventFileHead();
std::string EventRecord(const LogRow& row);
absl::StatusOr<LogRecord> NextEvent(absl::string_view rest);

}  // namespace runnel
