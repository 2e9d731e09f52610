#pragma once

// The samples of some classes: what learning that goes on begins with, and what comes later.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/data/dataset.h"

namespace runnel {

// By class, whether it is one of `text`: numbers and ranges from 0, "0-8" or "0,2,5-7". InvalidArgument:
// another text, or a class of which a set of so many lacks.
absl::StatusOr<std::vector<bool>> ParseClasses(absl::string_view text, int64_t classes);
// What ParseClasses reads: "0-8,12".
std::string ClassesText(const std::vector<bool>& classes);

// Both splits without samples of other classes; labels and their number stay. classes: as
// ParseClasses has them. InvalidArgument: another text, a class that the set lacks, classes without a sample to train or to test on, or a set with several labels a sample.
absl::StatusOr<DatasetSplits> OfClasses(DatasetSplits data, absl::string_view classes);

}  // namespace runnel
