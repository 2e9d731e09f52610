#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/data/dataset.h"
#include "central/data/loaders.h"
#include "central/data/own/token_samples.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// A loader that tells nothing of its progress.
template <absl::StatusOr<DatasetSplits> (*kLoad)(absl::string_view place, uint64_t seed)>
absl::StatusOr<DatasetSplits> AtOnce(const LoadRequest& request) {
  return kLoad(request.place, request.seed);
}

}  // namespace

absl::Span<const DatasetRow> BuiltinDatasets() {
  static constexpr DatasetRow kRows[] = {
      {"synthetic_digits", "generated digits, 1x28x28, 10 classes, 6000/1000", false, "off",
       AtOnce<data::LoadSyntheticDigits>},
      {"synthetic_har", "generated inertial windows, 9x128, 6 classes, 2400/600", false, "shift",
       AtOnce<data::LoadSyntheticHar>},
      {"synthetic_keywords",
       "generated cepstra of words of two sounds, 1x49x10, 12 classes, 4800/1200", false, "off",
       AtOnce<data::LoadSyntheticKeywords>},
      {"mnist", "MNIST, the four IDX files, plain or .gz", true, "off", AtOnce<data::LoadMnist>},
      {"cifar10", "CIFAR-10, binary version: data_batch_N.bin and test_batch.bin", true,
       "crop,flip", AtOnce<data::LoadCifar10>},
      {"ucihar", "UCI HAR, raw inertial signals in the original text layout", true, "shift",
       AtOnce<data::LoadUciHar>},
      {"wikitext2", "WikiText-2 as bytes: train.txt and test.txt; 128 bytes a sample", true, "off",
       AtOnce<data::LoadWikitext2>, "", data::DescribedTokens},
      {"wikitext2_words", "WikiText-2 as words; 128 words a sample", true, "off",
       AtOnce<data::LoadWikitext2Words>, "", data::DescribedTokens},
      {"csv", "a table, a line a sample", false, "off", data::LoadCsv, "FILE[,label=COLUMN]",
       data::DescribedCsv},
      {"npy", "two arrays of NumPy", false, "off", AtOnce<data::LoadNpy>, "SAMPLES,LABELS",
       data::DescribedNpy},
      {"images", "JPEG and PNG files, a folder a class", false, "crop,flip", data::LoadImageFolder,
       "FOLDER[,size=SIDE]", data::DescribedImages},
      {"latents", "what the frozen front of a model gave, written by learn", false, "off",
       AtOnce<data::LoadLatents>, "FILE"},
  };
  return kRows;
}

absl::StatusOr<const DatasetRow*> FindDataset(absl::string_view text) {
  const absl::string_view name = text.substr(0, text.find(':'));
  for (const DatasetRow& row : BuiltinDatasets()) {
    if (row.name == name && row.is_own() == (name.size() < text.size())) return &row;
  }
  if (name.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--dataset: none of those that there are (", absl::StrJoin(DatasetNames(), ", "),
        ") is this model's; give one whose samples fit"));
  }
  return absl::InvalidArgumentError(absl::StrCat("data set '", text, "' is not known; there are ",
                                                 absl::StrJoin(DatasetNames(), ", ")));
}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Unlabelled(const std::string& path) const {
  absl::StatusOr<std::unique_ptr<Dataset>> described = DescribedDataset(Describe());
  if (described.ok()) return (*described)->Unlabelled(path);
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", described.status().message()));
}

absl::StatusOr<std::unique_ptr<Dataset>> DescribedDataset(const DataDescription& description) {
  for (const DatasetRow& row : BuiltinDatasets()) {
    if (row.name == description.kind && row.described != nullptr) return row.described(description);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the model's data (", description.kind.empty() ? "latents" : description.kind,
      ") are no pictures, tables, arrays or texts: only its data set's test is predicted"));
}

std::vector<std::string> DatasetNames() {
  std::vector<std::string> names;
  for (const DatasetRow& row : BuiltinDatasets()) {
    names.push_back(row.is_own() ? absl::StrCat(row.name, ":", row.own_place)
                                 : std::string(row.name));
  }
  return names;
}

absl::StatusOr<DatasetSplits> LoadDataset(absl::string_view text, absl::string_view data_dir,
                                          uint64_t seed,
                                          std::function<void(double share)> on_progress) {
  RUNNEL_ASSIGN_OR_RETURN(const DatasetRow* row, FindDataset(text));
  if (row->is_own())
    return row->load({text.substr(row->name.size() + 1), seed, std::move(on_progress)});
  if (row->needs_data_dir && data_dir.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--dataset ", row->name, ": needs --data-dir, the folder with its files"));
  }
  return row->load({data_dir, seed, std::move(on_progress)});
}

}  // namespace runnel
