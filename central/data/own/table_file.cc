#include "central/data/own/table_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "central/data/own/table_records.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

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

// A byte that no text has. The wide ones begin with a mark.
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
      absl::StrCat(Printable(path_), ": line ", line, ": ", Printable(what)));
}

absl::Status TableFile::CheckCommas(size_t column) const {
  if (commas_[column].unclear_line == 0) return absl::OkStatus();
  return Wrong(commas_[column].unclear_line,
               absl::StrCat("column '", columns_[column],
                            "' has commas that may stand before decimals or between thousands; "
                            "write decimals after a point and thousands without commas, or leave "
                            "the column out with skip=",
                            columns_[column]));
}

bool IsMissing(absl::string_view text) {
  if (text.empty()) return true;
  return std::any_of(std::begin(kMissing), std::end(kMissing),
                     [text](absl::string_view word) { return absl::EqualsIgnoreCase(text, word); });
}

bool IsTableNumber(absl::string_view text, double* value) {
  return absl::SimpleAtod(text, value) && std::abs(*value) <= std::numeric_limits<float>::max();
}

// In a table whose commas separate nothing: a column's become points, unless they may as well stand
// between thousands.
struct TableFile::CommaFacts {
  bool has_points = false, has_groups = false, has_decimals = false;
  size_t first_line = 0;

  void Add(const std::string& field, size_t line) {
    std::string with_point;
    double ignored = 0;
    const bool has_comma = field.find(',') != std::string::npos;
    const bool is_grouped = IsGrouped(field, ',', '.') || IsGrouped(field, '.', ',');
    const bool is_decimal = ReadDecimalComma(field, with_point);
    if (has_comma && (is_grouped || is_decimal) && first_line == 0) first_line = line;
    has_decimals |= is_decimal && !is_grouped;
    has_groups |= is_grouped && !is_decimal;
    has_points |= field.find('.') != std::string::npos && absl::SimpleAtod(field, &ignored);
  }
  Commas Result() const {
    const bool are_unclear = has_points || has_groups || !has_decimals;
    if (first_line == 0) return {};
    return {!are_unclear, are_unclear ? first_line : 0};
  }
};

TableFile::~TableFile() {
  if (file_ >= 0) close(file_);
}

absl::StatusOr<std::unique_ptr<TableFile>> TableFile::Open(
    const std::string& path, const std::function<void(double share)>& on_progress) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0)
    return absl::NotFoundError(absl::StrCat(Printable(path), ": is missing"));
  if (S_ISDIR(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(Printable(path), ": is a folder, no table"));
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(Printable(path), ": is no file"));
  auto table = std::unique_ptr<TableFile>(new TableFile(path));
  table->file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (table->file_ < 0)
    return absl::NotFoundError(absl::StrCat(Printable(path), ": cannot be read"));
  RUNNEL_RETURN_IF_ERROR(table->Index(static_cast<uint64_t>(info.st_size), on_progress));
  return table;
}

absl::Status TableFile::NameColumns(TableRow first, size_t line, bool& is_row) {
  if (first.size() < 2) {
    return Wrong(line,
                 "one column; a class and features need two, with commas, semicolons or "
                 "tabs between them");
  }
  is_row = HoldsNumbers(first, separator_);
  if (is_row) {
    for (size_t i = 1; i <= first.size(); ++i) columns_.push_back(absl::StrCat("column ", i));
  } else {
    columns_ = std::move(first);
    NumberRepeated(columns_);
  }
  return absl::OkStatus();
}

absl::Status TableFile::Index(uint64_t bytes,
                              const std::function<void(double share)>& on_progress) {
  // Whether it is text, and its separator.
  FilePieces pieces(file_, 0);
  bool is_first = true;
  uint64_t begin = 0;
  do {
    if (!pieces.ReadOn()) return Changed();
    RUNNEL_RETURN_IF_ERROR(CheckText(pieces.text(), path_));
    if (std::exchange(is_first, false)) {
      constexpr absl::string_view kMark = "\xEF\xBB\xBF";
      if (absl::StartsWith(pieces.text(), kMark)) begin = kMark.size();
      separator_ = SeparatorOf(pieces.text().substr(begin));
    }
    pieces.Take(pieces.text().size());
  } while (!pieces.is_end());
  TableRecords records(file_, begin, separator_);
  std::vector<CommaFacts> commas;
  size_t line = 1;
  for (;;) {
    const size_t first_line = line;
    absl::StatusOr<std::optional<TableRecord>> record = records.Next();
    if (!record.ok()) return Wrong(first_line, record.status().message());
    if (!record->has_value()) break;
    line += (*record)->lines;
    if (on_progress != nullptr)
      on_progress(static_cast<double>(records.next()) / static_cast<double>(bytes));
    if ((*record)->is_blank()) continue;
    const TableRow& fields = (*record)->fields;
    if (columns_.empty()) {
      bool is_row = false;
      RUNNEL_RETURN_IF_ERROR(NameColumns(fields, first_line, is_row));
      commas.resize(columns_.size());
      if (!is_row) continue;
    }
    if (fields.size() != columns_.size()) {
      return Wrong(first_line, absl::StrCat("has ", fields.size(), " fields, the first line ",
                                            columns_.size()));
    }
    begins_.push_back(records.begin());
    lines_.push_back(static_cast<uint32_t>(first_line));
    for (size_t i = 0; separator_ != ',' && i < fields.size(); ++i)
      commas[i].Add(fields[i], first_line);
  }
  if (lines_.empty())
    return absl::InvalidArgumentError(absl::StrCat(Printable(path_), ": holds no samples"));
  begins_.push_back(records.next());
  for (const CommaFacts& facts : commas) commas_.push_back(facts.Result());
  return absl::OkStatus();
}

absl::Status TableFile::Changed() const {
  return absl::DataLossError(
      absl::StrCat(Printable(path_), ": cannot be read any more, or has changed"));
}

void TableFile::ReadDecimals(TableRow& row) const {
  std::string with_point;
  for (size_t i = 0; i < row.size(); ++i) {
    if (commas_[i].become_points && ReadDecimalComma(row[i], with_point)) row[i] = with_point;
  }
}

absl::StatusOr<TableRow> TableFile::Read(int64_t row) const {
  const uint64_t begin = begins_[static_cast<size_t>(row)];
  std::string text(begins_[static_cast<size_t>(row) + 1] - begin, '\0');
  size_t read = 0;
  while (read < text.size()) {
    const ssize_t count =
        pread(file_, text.data() + read, text.size() - read, static_cast<off_t>(begin + read));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Changed();
    read += static_cast<size_t>(count);
  }
  absl::StatusOr<std::optional<TableRecord>> record = TakeRecord(separator_, text, /*is_end=*/true);
  if (!record.ok() || (*record)->fields.size() != columns_.size()) return Changed();
  ReadDecimals((*record)->fields);
  return std::move((*record)->fields);
}

absl::Status TableFile::ForEach(
    absl::FunctionRef<absl::Status(int64_t row, const TableRow& fields)> visit) const {
  TableRecords records(file_, begins_.front(), separator_);
  for (int64_t row = 0; row < rows();) {
    absl::StatusOr<std::optional<TableRecord>> record = records.Next();
    if (!record.ok() || !record->has_value()) return Changed();
    if ((*record)->is_blank()) continue;
    if ((*record)->fields.size() != columns_.size()) return Changed();
    ReadDecimals((*record)->fields);
    RUNNEL_RETURN_IF_ERROR(visit(row++, (*record)->fields));
  }
  return absl::OkStatus();
}

}  // namespace runnel::data
