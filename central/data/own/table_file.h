#pragma once

// Tables as text: a line a sample, fields between commas, semicolons or tabs.

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel::data {

using TableRow = std::vector<std::string>;

struct TableFile {
  std::string path;
  TableRow columns;  // names, each there once
  std::vector<TableRow> rows;
  std::vector<size_t> lines;  // of the file, by row
  // By column: the line of its first comma, where commas may stand before decimals or between
  // thousands; 0: they are clear.
  std::vector<size_t> unclear;

  // InvalidArgument that names file and line.
  absl::Status Wrong(size_t line, absl::string_view what) const;
  // InvalidArgument: the commas of the column are unclear.
  absl::Status CheckCommas(size_t column) const;
};

// RFC 4180, and what spreadsheets make of it: a mark at the beginning, lines that end in CR, LF or
// both, quotes around fields. Without a line of names columns are called "column 1" and so on; a
// name that is there again gets a number. Where commas separate no fields a column's commas before
// decimals become points, unless they are unclear. Errors, one line each: NotFound: no such file.
// InvalidArgument: a folder, no text in UTF-8 or a part of it, rows of other lengths, no rows.
absl::StatusOr<TableFile> ReadTableFile(const std::string& path);

// What tables have in place of a number that is not known.
bool IsMissing(absl::string_view text);
// A number that FP32 holds.
bool IsTableNumber(absl::string_view text, double* value);

}  // namespace runnel::data
