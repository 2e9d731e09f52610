#include "central/data/own/table_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
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

// The separator that the first line has most of outside quotes. Of as many commas as semicolons or
// tabs the commas stand before decimals.
char SeparatorOf(absl::string_view text) {
  constexpr absl::string_view kSeparators = ";\t,";
  size_t counts[kSeparators.size()] = {};
  bool in_quotes = false;
  for (const char c : text.substr(0, text.find_first_of("\r\n"))) {
    const size_t separator = kSeparators.find(c);
    if (c == '"') in_quotes = !in_quotes;
    if (!in_quotes && separator != kSeparators.npos) ++counts[separator];
  }
  return kSeparators[static_cast<size_t>(std::max_element(counts, std::end(counts)) - counts)];
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

// Digits in groups of three, such as -1,234,567.8 with ',' between groups and '.' before decimals.
bool IsGrouped(absl::string_view field, char between_groups, char before_decimals) {
  if (!absl::ConsumePrefix(&field, "-")) absl::ConsumePrefix(&field, "+");
  if (absl::StartsWith(field, "0")) return false;
  const auto digits = [&field] {
    const size_t end = std::min(field.find_first_not_of("0123456789"), field.size());
    field.remove_prefix(end);
    return end;
  };
  const size_t first = digits();
  if (first == 0 || first > 3 || field.empty() || field[0] != between_groups) return false;
  while (!field.empty() && field[0] == between_groups) {
    field.remove_prefix(1);
    if (digits() != 3) return false;
  }
  if (!field.empty() && field[0] == before_decimals) {
    field.remove_prefix(1);
    digits();
  }
  return field.empty();
}

// "1,5" becomes "1.5". False: the field is no number with one comma.
bool ReadDecimalComma(const std::string& field, std::string& with_point) {
  const size_t comma = field.find(',');
  if (comma == std::string::npos) return false;
  with_point = field;
  with_point[comma] = '.';
  double ignored = 0;
  return absl::SimpleAtod(with_point, &ignored);
}

// The last field may be the class.
bool HoldsNumbers(const TableRow& row, char separator) {
  double ignored = 0;
  std::string with_point;
  return std::all_of(row.begin(), row.end() - 1, [&](const std::string& field) {
    if (IsMissing(field) || IsTableNumber(field, &ignored)) return true;
    return separator != ',' && (IsGrouped(field, ',', '.') || IsGrouped(field, '.', ',') ||
                                ReadDecimalComma(field, with_point));
  });
}

// In a table whose commas separate nothing: puts points before the decimals of a column, unless its
// commas may as well stand between thousands. Then the column stays as it is, and `unclear` has the
// line of its first comma.
void ReadDecimalCommas(TableFile& table, size_t column) {
  bool has_points = false, has_groups = false, has_decimals = false;
  size_t first = 0;
  std::string with_point;
  double ignored = 0;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const std::string& field = table.rows[r][column];
    const bool has_comma = field.find(',') != std::string::npos;
    const bool is_grouped = IsGrouped(field, ',', '.') || IsGrouped(field, '.', ',');
    const bool is_decimal = ReadDecimalComma(field, with_point);
    if (has_comma && (is_grouped || is_decimal) && first == 0) first = table.lines[r];
    has_decimals |= is_decimal && !is_grouped;
    has_groups |= is_grouped && !is_decimal;
    has_points |= field.find('.') != std::string::npos && absl::SimpleAtod(field, &ignored);
  }
  if (first == 0) return;
  if (has_points || has_groups || !has_decimals) {
    table.unclear[column] = first;
    return;
  }
  for (TableRow& row : table.rows) {
    if (ReadDecimalComma(row[column], with_point)) row[column] = with_point;
  }
}

// The second "a" becomes "a (2)", or has the next number where a column is called "a (2)".
void NumberRepeated(TableRow& names) {
  const std::set<std::string> given(names.begin(), names.end());
  std::set<std::string> used;
  std::map<std::string, int> times;
  for (std::string& name : names) {
    int& time = times[name];
    std::string numbered = name;
    if (++time > 1) {
      do numbered = absl::StrCat(name, " (", time++, ")");
      while (given.count(numbered) > 0 || used.count(numbered) > 0);
      --time;
    }
    used.insert(numbered);
    name = std::move(numbered);
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

absl::Status TableFile::CheckCommas(size_t column) const {
  if (unclear[column] == 0) return absl::OkStatus();
  return Wrong(unclear[column],
               absl::StrCat("column '", columns[column],
                            "' has commas that may stand before decimals or between thousands; "
                            "write decimals after a point and thousands without commas, or leave "
                            "the column out with skip=",
                            columns[column]));
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
    if (table.columns.empty()) {
      if (row->size() < 2) {
        return table.Wrong(first_line,
                           "one column; a class and features need two, with commas, semicolons or "
                           "tabs between them");
      }
      if (!HoldsNumbers(*row, separator)) {
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
  table.unclear.resize(table.columns.size());
  for (size_t i = 0; separator != ',' && i < table.columns.size(); ++i) ReadDecimalCommas(table, i);
  return table;
}

}  // namespace runnel::data
