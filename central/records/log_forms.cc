#include "central/records/log_forms.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

// A new one is a row here.
constexpr LogColumn kColumns[] = {
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

std::string CellText(std::optional<double> value) {
  return value.has_value() ? absl::StrFormat("%.9g", *value) : "";
}

std::string CsvHead() {
  const auto name = [](std::string* out, const LogColumn& c) { absl::StrAppend(out, c.name); };
  return absl::StrCat(absl::StrJoin(kColumns, ",", name), "\n");
}

std::string CsvRecord(const LogRow& row) {
  const auto cell = [&](std::string* out, const LogColumn& column) {
    absl::StrAppend(out, CellText(column.value(row)));
  };
  return absl::StrCat(absl::StrJoin(kColumns, ",", cell), "\n");
}

absl::StatusOr<LogPlace> CsvPlace(absl::string_view line) {
  LogPlace place;
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  if (cells.size() == std::size(kColumns) && absl::SimpleAtod(cells[kStep], &place.step) &&
      absl::SimpleAtod(cells[kSeconds], &place.seconds)) {
    return place;
  }
  return absl::DataLossError("is no row");
}

std::string NoHead() { return ""; }

std::string JsonRecord(const LogRow& row) {
  std::vector<std::string> cells;
  for (const LogColumn& column : kColumns) {
    const std::string text = CellText(column.value(row));
    if (!text.empty()) cells.push_back(absl::StrCat("\"", column.name, "\": ", text));
  }
  return absl::StrCat("{", absl::StrJoin(cells, ", "), "}\n");
}

absl::StatusOr<LogPlace> JsonPlace(absl::string_view line) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(line));
  if (!json.is_object() || !json.contains("step") || !json.contains("seconds"))
    return absl::DataLossError("is no row");
  LogPlace place;
  RUNNEL_RETURN_IF_ERROR(ReadValue(json["step"], "step", place.step));
  RUNNEL_RETURN_IF_ERROR(ReadValue(json["seconds"], "seconds", place.seconds));
  return place;
}

template <auto PlaceOf>
absl::StatusOr<LogRecord> NextLine(absl::string_view rest) {
  const size_t end = rest.find('\n');
  if (end == absl::string_view::npos) return LogRecord{};
  const absl::string_view line = rest.substr(0, end);
  if (line.empty() || rest.substr(0, end + 1) == CsvHead()) return LogRecord{.bytes = end + 1};
  RUNNEL_ASSIGN_OR_RETURN(const LogPlace place, PlaceOf(line));
  return LogRecord{end + 1, place};
}

constexpr LogForm kCsv = {"line", CsvHead, CsvRecord, NextLine<CsvPlace>};
constexpr LogForm kJsonLines = {"line", NoHead, JsonRecord, NextLine<JsonPlace>};
constexpr LogForm kEvents = {"record", EventFileHead, EventRecord, NextEvent};

}  // namespace

absl::Span<const LogColumn> LogColumns() { return kColumns; }

const LogForm* LogFormOf(absl::string_view path) {
  if (absl::EndsWith(path, ".csv")) return &kCsv;
  if (absl::EndsWith(path, ".jsonl")) return &kJsonLines;
  return absl::StrContains(path, ".tfevents.") ? &kEvents : nullptr;
}

}  // namespace runnel
