#pragma once

// What a run learned, as a file that others draw: a row at each barrier, and one for each
// evaluation, which is about an earlier step where it ran beside the training. One thread.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// A value; what is not there is an empty cell.
struct LogRow {
  int64_t step = 0;            // optimizer steps that are done
  int64_t epoch = 1;           // in which the last of them lies, from 1 as on the screen
  double seconds = 0;          // of training, without evaluations, over all lives of the run
  std::optional<double> loss;  // mean of the samples since the row before
  std::optional<double> learning_rate;  // of the last step
  std::optional<double> samples_per_s;  // since the row before
  std::optional<double> test_accuracy;  // 0 to 1
  std::optional<double> test_loss;
};

// One file or several of different forms (log_forms.h), all with the same rows.
class TrainingLog {
 public:
  // InvalidArgument: the name ends neither in .csv nor in .jsonl.
  static absl::Status CheckName(absl::string_view path);
  // What --log and --tensorboard name; either may be empty.
  static std::vector<std::string> Files(const std::string& log, const std::string& tensorboard);
  // Files with no row; their folders are made. AlreadyExists: one has some. Others as Continue.
  static absl::StatusOr<TrainingLog> Create(const std::vector<std::string>& paths);
  // Goes on behind the rows up to `step`; later ones, which the run does again, are gone. A file
  // that is not there is made. Errors as proto/process/atomic_file.h; DataLoss: one has other rows
  // than a log, and is left as it was.
  static absl::StatusOr<TrainingLog> Continue(const std::vector<std::string>& paths, int64_t step);

  // The row is in the files when this returns.
  absl::Status Append(const LogRow& row);
  // Training goes on from this step: rows of later ones are gone. Errors as Continue.
  absl::Status GoBackTo(int64_t step);
  // Of the last row in the files.
  double seconds() const { return seconds_; }

 private:
  explicit TrainingLog(std::vector<std::string> paths) : paths_(std::move(paths)) {}
  // The seconds of the last row that stays.
  static absl::StatusOr<double> CutBehind(const std::string& path, int64_t step);

  std::vector<std::string> paths_;
  double seconds_ = 0;
};

}  // namespace runnel
