#pragma once

// The records of a table's text, read in pieces. One thread at a time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel::data {

using TableRow = std::vector<std::string>;

struct TableRecord {
  TableRow fields;
  size_t bytes = 0;  // with the line's end
  size_t lines = 0;

  bool is_blank() const { return fields.size() == 1 && fields.front().empty(); }
};

// The record that the text begins with; none: it does not end in this part of the file (is_end: the
// text ends with the file). Fields may stand in quotes, which may hold separators, ends of lines and
// doubled quotes. InvalidArgument: more than 10,000 fields, a quote that is not closed.
absl::StatusOr<std::optional<TableRecord>> TakeRecord(char separator, absl::string_view text,
                                                      bool is_end);

// The bytes of a file from a place on.
class FilePieces {
 public:
  // file: open for reading; borrowed.
  FilePieces(int file, uint64_t begin) : file_(file), offset_(begin) {}

  // Those that were read and not taken.
  absl::string_view text() const { return absl::string_view(buffer_).substr(taken_); }
  bool is_end() const { return is_end_; }  // nothing is behind the text
  void Take(size_t bytes) { taken_ += bytes; }
  // Reads on; what was taken is gone. False: that failed.
  bool ReadOn();

 private:
  const int file_;
  uint64_t offset_;  // of what is read next
  std::string buffer_;
  size_t taken_ = 0;
  bool is_end_ = false;
};

// Takes the records of a file one after the other.
class TableRecords {
 public:
  // file, begin: as FilePieces.
  TableRecords(int file, uint64_t begin, char separator)
      : pieces_(file, begin), begin_(begin), next_(begin), separator_(separator) {}

  // The next one; none behind the last. InvalidArgument: as TakeRecord, or over 64 MiB. DataLoss: the
  // file cannot be read.
  absl::StatusOr<std::optional<TableRecord>> Next();
  uint64_t begin() const { return begin_; }  // of the last one
  uint64_t next() const { return next_; }

 private:
  FilePieces pieces_;
  uint64_t begin_, next_;
  const char separator_;
};

}  // namespace runnel::data
