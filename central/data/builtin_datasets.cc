#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/data/dataset.h"
#include "central/data/loaders.h"

namespace runnel {

absl::Span<const DatasetRow> BuiltinDatasets() {
  static constexpr DatasetRow kRows[] = {
      {"synthetic_digits", "generated digits, 1x28x28, 10 classes, 6000/1000", false, "off",
       data::LoadSyntheticDigits},
      {"synthetic_har", "generated inertial windows, 9x128, 6 classes, 2400/600", false, "shift",
       data::LoadSyntheticHar},
      {"mnist", "MNIST, the four IDX files, plain or .gz", true, "off", data::LoadMnist},
      {"cifar10", "CIFAR-10, binary version: data_batch_N.bin and test_batch.bin", true,
       "crop,flip", data::LoadCifar10},
      {"ucihar", "UCI HAR, raw inertial signals in the original text layout", true, "shift",
       data::LoadUciHar},
  };
  return kRows;
}

absl::StatusOr<const DatasetRow*> FindDataset(absl::string_view name) {
  for (const DatasetRow& row : BuiltinDatasets()) {
    if (row.name == name) return &row;
  }
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dataset: none of those that there are (", absl::StrJoin(DatasetNames(), ", "),
        ") is this model's; give one whose samples fit"));
  }
  return absl::InvalidArgumentError(absl::StrCat("data set '", name, "' is not known; there are ",
                                                 absl::StrJoin(DatasetNames(), ", ")));
}

std::vector<std::string> DatasetNames() {
  std::vector<std::string> names;
  for (const DatasetRow& row : BuiltinDatasets()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
