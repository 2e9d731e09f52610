#include "central/data/own/table_records.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

constexpr size_t kMaxColumns = 10'000;
constexpr size_t kReadBytes = size_t{1} << 20;  // at once
constexpr size_t kMaxRecordBytes = size_t{64} << 20;

// Of a line that ends at `i`, in CR, LF or both: whether this is its last byte.
bool EndsLine(absl::string_view text, size_t i) {
  return text[i] == '\n' || (text[i] == '\r' && text.substr(i + 1, 1) != "\n");
}

}  // namespace

absl::StatusOr<std::optional<TableRecord>> TakeRecord(char separator, absl::string_view text,
                                                      bool is_end) {
  TableRecord record;
  TableRow& row = record.fields;
  row.emplace_back();
  bool in_quotes = false, was_quoted = false;
  const auto is_plain = [separator](char c) {
    return c != separator && c != '"' && c != '\r' && c != '\n';
  };
  size_t i = 0;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    // What comes behind says what these are.
    if (!is_end && i + 1 == text.size() && (c == '\r' || c == '"')) return std::nullopt;
    const bool ends_line = EndsLine(text, i);
    if (ends_line) ++record.lines;
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
      size_t end = i + 1;
      while (end < text.size() && is_plain(text[end])) ++end;
      row.back().append(text.data() + i, end - i);
      i = end - 1;
    }
  }
  if (i == text.size() && !is_end) return std::nullopt;
  if (in_quotes) return absl::InvalidArgumentError("a quote is not closed");
  record.bytes = std::min(i + 1, text.size());
  for (std::string& field : row) absl::StripAsciiWhitespace(&field);
  return record;
}

bool FilePieces::ReadOn() {
  buffer_.erase(0, taken_);
  taken_ = 0;
  const size_t kept = buffer_.size();
  buffer_.resize(kept + std::max(kReadBytes, kept));
  size_t read = kept;
  while (read < buffer_.size()) {
    const ssize_t count = pread(file_, buffer_.data() + read, buffer_.size() - read,
                                static_cast<off_t>(offset_ + read - kept));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    is_end_ = count == 0;
    if (is_end_) break;
    read += static_cast<size_t>(count);
  }
  buffer_.resize(read);
  offset_ += read - kept;
  return true;
}

absl::StatusOr<std::optional<TableRecord>> TableRecords::Next() {
  for (;;) {
    if (pieces_.is_end() && pieces_.text().empty()) return std::nullopt;
    absl::StatusOr<std::optional<TableRecord>> record =
        TakeRecord(separator_, pieces_.text(), pieces_.is_end());
    if (record.ok() && record->has_value()) {
      pieces_.Take((*record)->bytes);
      begin_ = std::exchange(next_, next_ + (*record)->bytes);
      return record;
    }
    RUNNEL_RETURN_IF_ERROR(record.status());
    if (pieces_.text().size() > kMaxRecordBytes)
      return absl::InvalidArgumentError("has no end within 64 MiB; is a quote not closed?");
    if (!pieces_.ReadOn()) return absl::DataLossError("cannot be read");
  }
}
}  // namespace runnel::data
