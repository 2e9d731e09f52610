#pragma once

// Tables as text: a line a sample, fields between commas, semicolons or tabs. Rows stay in the file,
// which may be larger than memory.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/data/own/table_records.h"

namespace runnel::data {

// Open for reading. Any thread.
class TableFile {
 public:
  TableFile(const TableFile&) = delete;
  ~TableFile();

  // RFC 4180, and what spreadsheets make of it: a mark at the beginning, lines that end in CR, LF or
  // both, quotes around fields. Without a line of names columns are called "column 1" and so on; a
  // name that is there again gets a number. Where commas separate no fields a column's commas before
  // decimals become points, unless they are unclear. Reads the file once. Errors, one line each:
  // NotFound: no such file. InvalidArgument: a folder, no text in UTF-8 or a part of it, rows of other
  // lengths or over 64 MiB, no rows.
  // on_progress: told the share that is read, [0, 1]; may be null.
  static absl::StatusOr<std::unique_ptr<TableFile>> Open(
      const std::string& path, const std::function<void(double share)>& on_progress = nullptr);

  const std::string& path() const { return path_; }
  const TableRow& columns() const { return columns_; }  // names, each there once
  int64_t rows() const { return static_cast<int64_t>(lines_.size()); }
  // Of the file, where the row begins.
  size_t line(int64_t row) const { return lines_[static_cast<size_t>(row)]; }

  // The row's fields. DataLoss: the file is not what it was.
  absl::StatusOr<TableRow> Read(int64_t row) const;
  // All rows in their order, up to the first error of `visit`. DataLoss as Read.
  absl::Status ForEach(
      absl::FunctionRef<absl::Status(int64_t row, const TableRow& fields)> visit) const;

  // InvalidArgument that names file and line.
  absl::Status Wrong(size_t line, absl::string_view what) const;
  // InvalidArgument: the commas of the column may stand before decimals or between thousands.
  absl::Status CheckCommas(size_t column) const;

 private:
  // Of a column's commas, where they separate no fields.
  struct Commas {
    bool become_points = false;
    size_t unclear_line = 0;  // of the first one; 0: they are clear
  };
  struct CommaFacts;

  explicit TableFile(std::string path) : path_(std::move(path)) {}
  absl::Status Index(uint64_t bytes, const std::function<void(double share)>& on_progress);
  absl::Status NameColumns(TableRow first, size_t line, bool& is_row);
  absl::Status Changed() const;
  void ReadDecimals(TableRow& row) const;

  std::string path_;
  int file_ = -1;
  char separator_ = ',';
  TableRow columns_;
  std::vector<Commas> commas_;  // by column
  // By row: where it begins; behind the last one the file's end.
  std::vector<uint64_t> begins_;
  std::vector<uint32_t> lines_;
};

// What tables have in place of a number that is not known.
bool IsMissing(absl::string_view text);
// A number that FP32 holds.
bool IsTableNumber(absl::string_view text, double* value);

}  // namespace runnel::data
