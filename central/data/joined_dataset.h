#pragma once

// Several sets of samples without labels as one, in their order: a file each.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "central/data/dataset.h"

namespace runnel::data {

class JoinedDataset final : public Dataset {
 public:
  // At least one; all of the same shape and classes.
  explicit JoinedDataset(std::vector<std::unique_ptr<Dataset>> parts) : parts_(std::move(parts)) {
    for (const std::unique_ptr<Dataset>& part : parts_) ends_.push_back(size() + part->size());
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  const Shape& sample_shape() const override { return parts_[0]->sample_shape(); }
  int64_t classes() const override { return parts_[0]->classes(); }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    const auto [part, at] = Find(index);
    part->CopySample(at, out);
  }
  bool reads_files() const override {
    return std::any_of(parts_.begin(), parts_.end(),
                       [](const auto& part) { return part->reads_files(); });
  }
  int64_t tokens() const override { return parts_[0]->tokens(); }
  int64_t labels_per_sample() const override { return parts_[0]->labels_per_sample(); }
  int64_t predicted_label(int64_t index) const override {
    const auto [part, at] = Find(index);
    return part->predicted_label(at);
  }
  int32_t label(int64_t index) const override {
    const int64_t each = labels_per_sample();
    const auto [part, at] = Find(index / each);
    return part->label(at * each + index % each);
  }
  std::string class_name(int64_t label) const override { return parts_[0]->class_name(label); }
  std::string sample_name(int64_t index) const override {
    const auto [part, at] = Find(index);
    return part->sample_name(at);
  }

 private:
  std::pair<const Dataset*, int64_t> Find(int64_t index) const {
    const auto part =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    return {parts_[part].get(), part == 0 ? index : index - ends_[part - 1]};
  }

  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<int64_t> ends_;  // by part: index behind its last sample
};

}  // namespace runnel::data
