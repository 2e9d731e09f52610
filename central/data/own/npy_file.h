#pragma once

// A .npy file of one array, rows read by position.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel::data {

// A type of elements.
struct NpyElement;

// Open for reading. Any thread.
class NpyFile {
 public:
  NpyFile(const NpyFile&) = delete;
  ~NpyFile();

  // NotFound, InvalidArgument: name the file and what is wrong.
  static absl::StatusOr<std::unique_ptr<NpyFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // All but the first dimension; empty for a list.
  const std::vector<int64_t>& sample_dims() const { return dims_; }
  int64_t count() const { return count_; }
  bool holds_bytes() const;
  bool holds_floats() const;
  // Of the elements, as the file has them.
  int64_t data_bytes() const;

  // The row's numbers. DataLoss: the file cannot be read any more.
  absl::Status Read(int64_t row, absl::Span<double> out) const;

 private:
  explicit NpyFile(std::string path);
  absl::Status Wrong(absl::string_view what) const;
  absl::Status ReadHeader();
  absl::Status ReadFields(absl::string_view header);
  absl::Status ReadShape(absl::string_view text);

  std::string path_;
  int file_ = -1;
  const NpyElement* type_ = nullptr;
  int64_t begin_ = 0;  // of the elements
  int64_t count_ = 0;
  std::vector<int64_t> dims_;
};

// InvalidArgument: the row holds a number that is not finite.
absl::Status CheckFinite(const NpyFile& file, int64_t row, absl::Span<const double> numbers);

}  // namespace runnel::data
