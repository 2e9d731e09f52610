#include "central/data/class_filter.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "central/data/own/split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

std::unique_ptr<Dataset> Kept(std::unique_ptr<Dataset> all, const std::vector<bool>& kept) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < all->size(); ++i) {
    if (kept[static_cast<size_t>(all->label(i))]) indices.push_back(i);
  }
  return std::make_unique<data::Subset>(std::move(all), std::move(indices));
}

}  // namespace

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

std::string ClassesText(const std::vector<bool>& classes) {
  std::string text;
  for (size_t first = 0; first < classes.size(); ++first) {
    if (!classes[first]) continue;
    size_t last = first;
    while (last + 1 < classes.size() && classes[last + 1]) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", first);
    if (last > first) absl::StrAppend(&text, "-", last);
    first = last;
  }
  return text;
}

absl::StatusOr<DatasetSplits> OfClasses(DatasetSplits data, absl::string_view classes) {
  if (data.train->labels_per_sample() > 1)
    return absl::InvalidArgumentError("a sample has many labels, so that none is of one class");
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<bool> kept,
                          ParseClasses(classes, data.train->classes()));
  for (std::unique_ptr<Dataset>* split : {&data.train, &data.test}) {
    *split = Kept(std::move(*split), kept);
    if ((*split)->size() > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("the set has no sample of them to ",
                                                   split == &data.train ? "train" : "test", " on"));
  }
  return data;
}

}  // namespace runnel
