#include "predictor/judge/predictions_file.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr absl::string_view kMagic = "runnel-predictions 1";
constexpr size_t kKeyColumns = 5;

absl::StatusOr<TaskPrediction> ReadLine(size_t line, absl::string_view text) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("predictions: line ", line, ": ", what));
  };
  const std::vector<absl::string_view> columns = absl::StrSplit(text, ' ');
  if (columns.size() <= kKeyColumns) return wrong("has too few columns");
  TaskPrediction prediction;
  prediction.method = std::string(columns[0]);
  prediction.configuration = std::string(columns[1]);
  prediction.model = std::string(columns[2]);
  if (!absl::SimpleAtoi(columns[3], &prediction.batch) || prediction.batch < 1 ||
      !absl::SimpleAtoi(columns[4], &prediction.samples) || prediction.samples < 0) {
    return wrong("batch and samples must be numbers");
  }
  for (size_t i = kKeyColumns; i < columns.size(); ++i) {
    double seconds = 0;
    if (!absl::SimpleAtod(columns[i], &seconds) || !std::isfinite(seconds) || seconds < 0)
      return wrong("seconds must be numbers");
    prediction.seconds.push_back(seconds);
  }
  return prediction;
}

}  // namespace

std::string FormatPredictions(const std::vector<TaskPrediction>& predictions) {
  std::string text = absl::StrCat(kMagic, "\n");
  for (const TaskPrediction& one : predictions) {
    absl::StrAppend(&text, one.method, " ", one.configuration, " ", one.model, " ", one.batch, " ",
                    one.samples);
    for (const double seconds : one.seconds) absl::StrAppendFormat(&text, " %.7g", seconds);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

absl::StatusOr<std::vector<TaskPrediction>> ParsePredictions(absl::string_view text) {
  std::vector<TaskPrediction> predictions;
  size_t line = 0;
  for (const absl::string_view row : absl::StrSplit(text, '\n')) {
    if (++line == 1) {
      if (row == kMagic) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("predictions: does not begin with '", kMagic, "'"));
    }
    if (row.empty()) continue;
    RUNNEL_ASSIGN_OR_RETURN(TaskPrediction one, ReadLine(line, row));
    predictions.push_back(std::move(one));
  }
  return predictions;
}

}  // namespace runnel
