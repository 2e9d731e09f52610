#include "central/data/class_filter.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

class ClassSubset final : public Dataset {
 public:
  ClassSubset(std::unique_ptr<Dataset> all, const std::vector<bool>& kept) : all_(std::move(all)) {
    for (int64_t i = 0; i < all_->size(); ++i) {
      if (kept[static_cast<size_t>(all_->label(i))]) indices_.push_back(i);
    }
  }

  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  const Shape& sample_shape() const override { return all_->sample_shape(); }
  int64_t classes() const override { return all_->classes(); }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    all_->CopySample(indices_[static_cast<size_t>(index)], out);
  }
  float outside(int64_t channel) const override { return all_->outside(channel); }
  int64_t tokens() const override { return all_->tokens(); }
  int32_t label(int64_t index) const override {
    return all_->label(indices_[static_cast<size_t>(index)]);
  }

 private:
  std::unique_ptr<Dataset> all_;
  std::vector<int64_t> indices_;
};

// By class, of a set with so many.
absl::StatusOr<std::vector<bool>> ParseClasses(absl::string_view text, int64_t classes) {
  std::vector<bool> kept(static_cast<size_t>(classes));
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    int64_t first = 0, last = 0;
    const bool is_one = ends.first.size() == part.size();
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(is_one ? ends.first : ends.second, &last) || first < 0 || first > last) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is neither a class nor a range such as 0-8"));
    }
    if (last >= classes) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no class ", last, ", they are 0 to ", classes - 1));
    }
    for (int64_t i = first; i <= last; ++i) kept[static_cast<size_t>(i)] = true;
  }
  return kept;
}

}  // namespace

absl::StatusOr<DatasetSplits> OfClasses(DatasetSplits data, absl::string_view classes) {
  if (data.train->labels_per_sample() > 1)
    return absl::InvalidArgumentError("a sample has many labels, so that none is of one class");
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<bool> kept,
                          ParseClasses(classes, data.train->classes()));
  for (std::unique_ptr<Dataset>* split : {&data.train, &data.test}) {
    *split = std::make_unique<ClassSubset>(std::move(*split), kept);
    if ((*split)->size() > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("the set has no sample of them to ",
                                                   split == &data.train ? "train" : "test", " on"));
  }
  return data;
}

}  // namespace runnel
