#include "central/data/own/npy_tokens.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "central/data/own/npy_file.h"
#include "central/data/own/split.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

// Rows of equal length, one behind the other.
struct WholeNumbers {
  int64_t count = 0, width = 1;
  std::vector<int32_t> values;
};

// InvalidArgument: rows that are no lists, or a number that is not whole and below `end`.
absl::StatusOr<WholeNumbers> ReadWhole(const std::string& path, int64_t end,
                                       absl::string_view what) {
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<NpyFile> file, NpyFile::Open(path));
  if (file->sample_dims().size() > 1)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", what, "s are (N, positions) or (N)"));
  WholeNumbers numbers{file->count(), file->sample_dims().empty() ? 1 : file->sample_dims()[0], {}};
  std::vector<double> row(static_cast<size_t>(numbers.width));
  for (int64_t i = 0; i < numbers.count; ++i) {
    RUNNEL_RETURN_IF_ERROR(file->Read(i, absl::MakeSpan(row)));
    for (const double value : row) {
      if (!(value >= 0 && value < static_cast<double>(end) && value == std::floor(value))) {
        return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, " ", value, " of sample ",
                                                       i, " is no whole number below ", end));
      }
      numbers.values.push_back(static_cast<int32_t>(value));
    }
  }
  return numbers;
}

class TokenDataset final : public Dataset {
 public:
  TokenDataset(WholeNumbers samples, WholeNumbers labels, int64_t tokens, int64_t classes)
      : samples_(std::move(samples)),
        labels_(std::move(labels)),
        shape_({samples_.width}),
        tokens_(tokens),
        classes_(classes) {}

  int64_t size() const override { return samples_.count; }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return classes_; }
  int64_t tokens() const override { return tokens_; }
  int64_t labels_per_sample() const override { return labels_.width; }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    std::copy_n(samples_.values.begin() + index * samples_.width, samples_.width, out.begin());
  }
  int32_t label(int64_t index) const override { return labels_.values[static_cast<size_t>(index)]; }
  DataDescription Describe() const override {
    DataDescription description = {
        .kind = "npy", .sample = shape_, .vocabulary = "numbers", .tokens = tokens_};
    if (labels_.width > 1) return description;
    for (int64_t label = 0; label < classes_; ++label)
      description.classes.push_back(std::to_string(label));
    return description;
  }

 private:
  const WholeNumbers samples_, labels_;
  const Shape shape_;
  const int64_t tokens_;  // what a token can be
  const int64_t classes_;
};

struct TokenArrays {
  WholeNumbers samples, labels;
};

absl::StatusOr<TokenArrays> ReadPair(const std::string& samples, const std::string& labels,
                                     int64_t tokens) {
  TokenArrays arrays;
  RUNNEL_ASSIGN_OR_RETURN(arrays.samples, ReadWhole(samples, tokens, "token"));
  RUNNEL_ASSIGN_OR_RETURN(arrays.labels, ReadWhole(labels, Dataset::kMostTokens, "label"));
  if (arrays.samples.count != arrays.labels.count) {
    return absl::InvalidArgumentError(absl::StrCat(samples, ": ", arrays.samples.count,
                                                   " samples, ", labels, " ", arrays.labels.count,
                                                   " labels"));
  }
  if (arrays.labels.width != 1 && arrays.labels.width != arrays.samples.width) {
    return absl::InvalidArgumentError(absl::StrCat(labels, ": has ", arrays.labels.width,
                                                   " labels a sample, for ", arrays.samples.width,
                                                   " positions; 1 or as many are read"));
  }
  const auto most = std::max_element(arrays.labels.values.begin(), arrays.labels.values.end());
  if (arrays.labels.width > 1 && *most >= tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(labels, ": label ", *most, " is no token below ", tokens));
  }
  return arrays;
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadNpyTokens(const Place& place, uint64_t seed,
                                            absl::string_view usage) {
  int64_t tokens = 0;
  if (!absl::SimpleAtoi(place.Option("tokens"), &tokens) || tokens < 2 ||
      tokens > Dataset::kMostTokens) {
    return absl::InvalidArgumentError(absl::StrCat("--data ", usage, ": tokens is '",
                                                   place.Option("tokens"), "', not from 2 to ",
                                                   Dataset::kMostTokens));
  }
  RUNNEL_ASSIGN_OR_RETURN(TokenArrays all, ReadPair(place.paths[0], place.paths[1], tokens));
  const bool by_position = all.labels.width > 1;
  int64_t classes = tokens;
  if (!by_position)
    classes = 1 + int64_t{*std::max_element(all.labels.values.begin(), all.labels.values.end())};
  if (!by_position && classes > static_cast<int64_t>(kMaxClasses)) {
    return absl::InvalidArgumentError(absl::StrCat(place.paths[1], ": has ", classes,
                                                   " classes; up to ", kMaxClasses, " can be"));
  }
  const std::string test_place = place.Option("test");
  if (test_place.empty()) {
    // Without a class of its own each sample counts as of one.
    const std::vector<int32_t> same(static_cast<size_t>(all.samples.count));
    SplitIndices split =
        SplitByClass(by_position ? same : all.labels.values, by_position ? 1 : classes, seed);
    return SplitsOf(std::make_shared<TokenDataset>(std::move(all.samples), std::move(all.labels),
                                                   tokens, classes),
                    std::move(split));
  }
  const std::vector<std::string> paths = absl::StrSplit(test_place, ';');
  if (paths.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--data ", usage, ": test is '", test_place, "'"));
  }
  RUNNEL_ASSIGN_OR_RETURN(TokenArrays test, ReadPair(paths[0], paths[1], tokens));
  if (test.samples.width != all.samples.width || test.labels.width != all.labels.width) {
    return absl::InvalidArgumentError(
        absl::StrCat(paths[0], ": its samples are of another shape than ", place.paths[0], "'s"));
  }
  const bool fits = by_position || std::all_of(test.labels.values.begin(), test.labels.values.end(),
                                               [&](int32_t label) { return label < classes; });
  if (!fits)
    return absl::InvalidArgumentError(
        absl::StrCat(paths[1], ": a label is none of the ", classes, " of ", place.paths[1]));
  DatasetSplits splits;
  splits.train = std::make_unique<TokenDataset>(std::move(all.samples), std::move(all.labels),
                                                tokens, classes);
  splits.test = std::make_unique<TokenDataset>(std::move(test.samples), std::move(test.labels),
                                               tokens, classes);
  return splits;
}

}  // namespace runnel::data
