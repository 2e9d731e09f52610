#pragma once

// The user's own data as two splits: which samples are kept for the test, and the scale of the
// others. Pure functions, any thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "central/data/dataset.h"
#include "central/data/memory_datasets.h"

namespace runnel::data {

struct SplitIndices {
  std::vector<int64_t> train, test;  // ascending
};

// Of each class one sample in five, drawn by the seed, is kept for the test; of classes with less
// than five one, where there are two.
SplitIndices SplitByClass(absl::Span<const int32_t> labels, int64_t classes, uint64_t seed);

// The part of a data set that these indices name; shares it.
class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> all, std::vector<int64_t> indices)
      : all_(std::move(all)), indices_(std::move(indices)) {}

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  const Shape& sample_shape() const override { return all_->sample_shape(); }
  int64_t classes() const override { return all_->classes(); }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    all_->CopySample(indices_[static_cast<size_t>(index)], out);
  }
  bool reads_files() const override { return all_->reads_files(); }
  float outside(int64_t channel) const override { return all_->outside(channel); }
  int64_t tokens() const override { return all_->tokens(); }
  int64_t labels_per_sample() const override { return all_->labels_per_sample(); }
  int64_t predicted_label(int64_t index) const override {
    return all_->predicted_label(indices_[static_cast<size_t>(index)]);
  }
  int32_t label(int64_t index) const override {
    const int64_t each = all_->labels_per_sample();
    return all_->label(indices_[static_cast<size_t>(index / each)] * each + index % each);
  }
  std::string class_name(int64_t label) const override { return all_->class_name(label); }
  std::string sample_name(int64_t index) const override {
    return all_->sample_name(indices_[static_cast<size_t>(index)]);
  }
  DataDescription Describe() const override { return all_->Describe(); }
  absl::StatusOr<std::unique_ptr<Dataset>> Unlabelled(const std::string& path) const override {
    return all_->Unlabelled(path);
  }

 private:
  std::shared_ptr<const Dataset> all_;
  std::vector<int64_t> indices_;
};

// Notes where nothing is left for the test.
DatasetSplits SplitsOf(std::shared_ptr<const Dataset> all, SplitIndices indices);

// The labels' texts as classes: in the order of their numbers if all are integers, else of their
// letters. InvalidArgument: fewer than two, or more than kMaxClasses.
struct Classes {
  std::vector<std::string> names;
  std::vector<int32_t> labels;  // by sample
};
inline constexpr size_t kMaxClasses = 10'000;
absl::StatusOr<Classes> ClassesOf(absl::Span<const std::string> labels, absl::string_view where);
// The same of integers, without a text a sample.
absl::StatusOr<Classes> ClassesOf(absl::Span<const int64_t> labels, absl::string_view where);

// Mean and deviation of each channel over at most kMostScaled of the samples, ScaledOf in their
// order; values that are no
// number do not count. A channel whose values are equal, to eight digits, has deviation 1. read:
// copies one sample as it lies in the file, channels * plane numbers.
inline constexpr size_t kMostScaled = 20'000;
std::vector<int64_t> ScaledOf(absl::Span<const int64_t> indices);
using ReadSampleFn = std::function<absl::Status(int64_t index, absl::Span<double> out)>;
absl::StatusOr<std::vector<ChannelScale>> MeasureScales(absl::Span<const int64_t> indices,
                                                        int64_t channels, int64_t plane,
                                                        const ReadSampleFn& read);

}  // namespace runnel::data
