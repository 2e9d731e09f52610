#pragma once

// What stays of a data set with the models that were trained on it: how samples of its kind become
// what the model takes, and what the classes are called. One small text, kept in check-points and in
// models in integers, so that samples without labels are read where the training data are not.
// Pure functions, any thread.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// Mean and deviation of one channel, of images in units of full brightness.
struct ChannelScale {
  double mean = 0;
  double deviation = 1;

  friend bool operator==(const ChannelScale&, const ChannelScale&) = default;
};

// A column of a table: one feature, or one for each of its texts.
struct TableColumn {
  std::string name;
  std::vector<std::string> categories;  // empty: a column of numbers

  int64_t features() const {
    return categories.empty() ? 1 : static_cast<int64_t>(categories.size());
  }
  friend bool operator==(const TableColumn&, const TableColumn&) = default;
};

struct DataDescription {
  // Row of builtin_datasets.cc that reads samples of this kind; empty: nothing is described.
  std::string kind;
  Shape sample;                      // without batch
  std::vector<std::string> classes;  // names, by label; of labels that are tokens: words, or none
  std::vector<ChannelScale> scales;  // by channel, of a table by feature; of tokens none
  std::vector<TableColumn> columns;  // of a table, in the order of its features
  bool holds_bytes = false;          // of arrays: samples are pixels
  std::string vocabulary;            // of tokens: "bytes", "words" or "numbers"; else empty
  int64_t tokens = 0;                // of "numbers": each is below it

  friend bool operator==(const DataDescription&, const DataDescription&) = default;
};

// A line a field; names are escaped as in C. Empty: of a description without a kind.
std::string DescriptionText(const DataDescription& description);
// InvalidArgument, one line: a field that is unknown, missing or out of range, scales or columns that
// do not fit the shape. The empty text is the description without a kind.
absl::StatusOr<DataDescription> ParseDescription(absl::string_view text);

}  // namespace runnel
