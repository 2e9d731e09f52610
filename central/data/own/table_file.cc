#include "central/data/own/table_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "central/data/data_files.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

constexpr size_t kMaxColumns = 10'000;
constexpr absl::string_view kMissing[] = {"?", "na", "nan", "n/a", "#n/a", "<na>", "null"};

// The separator that the first line has most of.
char SeparatorOf(absl::string_view text) {
  const absl::string_view line = text.substr(0, text.find_first_of("\r\n"));
  const auto count = [line](char c) { return std::count(line.begin(), line.end(), c); };
  return *std::max_element(",;\t", ",;\t" + 3, [&](char a, char b) { return count(a) < count(b); });
}

// Of a line that ends at `i`, in CR, LF or both: whether this is its last byte.
bool EndsLine(absl::string_view text, size_t i) {
  return text[i] == '\n' || (text[i] == '\r' && text.substr(i + 1, 1) != "\n");
}

// Fields may stand in quotes, which may hold separators, ends of lines and doubled quotes. Takes
// one record off the text and counts its lines.
absl::StatusOr<TableRow> TakeRecord(char separator, absl::string_view& text, size_t& line) {
  TableRow row(1);
  bool in_quotes = false, was_quoted = false;
  size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    const bool ends_line = EndsLine(text, i);
    if (ends_line) ++line;
    if (in_quotes) {
      if (c != '"') {
        row.back() += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        row.back() += text[++i];
      } else {
        in_quotes = false;
      }
    } else if (c == '"' && row.back().empty() && !was_quoted) {
      in_quotes = was_quoted = true;
    } else if (c == separator) {
      if (row.size() == kMaxColumns)
        return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxColumns, " columns"));
      row.emplace_back();
      was_quoted = false;
    } else if (ends_line) {
      break;
    } else {
      row.back() += c;
    }
  }
  if (in_quotes) return absl::InvalidArgumentError("a quote is not closed");
  text.remove_prefix(std::min(i + 1, text.size()));
  for (std::string& field : row) absl::StripAsciiWhitespace(&field);
  return row;
}

bool HoldsNumbers(const TableRow& row) {
  double ignored = 0;
  return std::all_of(row.begin(), row.end() - 1, [&](const std::string& field) {
    return IsMissing(field) || IsTableNumber(field, &ignored);
  });
}

// A field of a table whose commas separate nothing: "1,5" becomes "1.5".
void PointFor(std::string& field) {
  const size_t comma = field.find(',');
  if (comma == std::string::npos) return;
  std::string with_point = field;
  with_point[comma] = '.';
  double ignored = 0;
  if (absl::SimpleAtod(with_point, &ignored)) field = std::move(with_point);
}

void NumberRepeated(TableRow& names) {
  std::map<std::string, int> times;
  for (std::string& name : names) {
    const int time = ++times[name];
    if (time > 1) absl::StrAppend(&name, " (", time, ")");
  }
}

// A byte that no text has.
absl::Status CheckText(absl::string_view bytes, const std::string& path) {
  if (bytes.find('\0') == absl::string_view::npos) return absl::OkStatus();
  const bool is_wide = absl::StartsWith(bytes, "\xFF\xFE") || absl::StartsWith(bytes, "\xFE\xFF");
  return absl::InvalidArgumentError(absl::StrCat(Printable(path),
                                                 is_wide ? ": is text in UTF-16" : ": is no text",
                                                 "; save the table as CSV in UTF-8"));
}

}  // namespace

absl::Status TableFile::Wrong(size_t line, absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(Printable(path), ": line ", line, ": ", Printable(what)));
}

bool IsMissing(absl::string_view text) {
  if (text.empty()) return true;
  return std::any_of(std::begin(kMissing), std::end(kMissing),
                     [text](absl::string_view word) { return absl::EqualsIgnoreCase(text, word); });
}

bool IsTableNumber(absl::string_view text, double* value) {
  return absl::SimpleAtod(text, value) && std::abs(*value) <= std::numeric_limits<float>::max();
}

absl::StatusOr<TableFile> ReadTableFile(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(absl::StrCat(Printable(path), ": is a folder, no table"));
  RUNNEL_ASSIGN_OR_RETURN(const std::string bytes, ReadText(path));
  RUNNEL_RETURN_IF_ERROR(CheckText(bytes, path));
  absl::string_view text = bytes;
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  TableFile table;
  table.path = path;
  const char separator = SeparatorOf(text);
  size_t line = 1;
  while (!text.empty()) {
    const size_t first_line = line;
    absl::StatusOr<TableRow> row = TakeRecord(separator, text, line);
    if (!row.ok()) return table.Wrong(first_line, row.status().message());
    if (row->size() == 1 && row->front().empty()) continue;
    if (separator != ',') std::for_each(row->begin(), row->end(), PointFor);
    if (table.columns.empty()) {
      if (row->size() < 2) {
        return table.Wrong(first_line,
                           "one column; a class and features need two, with commas, semicolons or "
                           "tabs between them");
      }
      if (!HoldsNumbers(*row)) {
        table.columns = *std::move(row);
        NumberRepeated(table.columns);
        continue;
      }
      for (size_t i = 1; i <= row->size(); ++i) table.columns.push_back(absl::StrCat("column ", i));
    }
    if (row->size() != table.columns.size()) {
      return table.Wrong(first_line, absl::StrCat("has ", row->size(), " fields, the first line ",
                                                  table.columns.size()));
    }
    table.rows.push_back(*std::move(row));
    table.lines.push_back(first_line);
  }
  if (table.rows.empty())
    return absl::InvalidArgumentError(absl::StrCat(Printable(path), ": holds no samples"));
  return table;
}

}  // namespace runnel::data
