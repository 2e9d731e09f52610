// Arrays of NumPy: samples and labels, a file each. Samples stay in the file and are read one by
// one.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "central/data/loaders.h"
#include "central/data/own/npy_file.h"
#include "central/data/own/npy_tokens.h"
#include "central/data/own/place.h"
#include "central/data/own/split.h"
#include "central/data/own/token_samples.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

constexpr absl::string_view kUsage =
    "npy:SAMPLES,LABELS[,test=SAMPLES;LABELS][,scale=off][,tokens=COUNT]";

// Files of floats up to here are looked through when they are loaded; of larger ones, which may not
// stay in memory, the samples that scales are measured on.
constexpr int64_t kMostLookedThrough = int64_t{256} << 20;

// (N, H, W) is an image of one channel, as (N, 1, H, W); (N, C, L) and (N, C, H, W) are as they
// are; bytes are pixels.
absl::StatusOr<Shape> SampleShape(const NpyFile& file) {
  const std::vector<int64_t>& dims = file.sample_dims();
  const bool is_plane = dims.size() == 2 && file.holds_bytes();
  if (is_plane) return Shape{1, dims[0], dims[1]};
  if (dims.size() >= 1 && dims.size() <= 3) return Shape::Create(dims);
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": its shape is (", file.count(), dims.empty() ? "" : ", ",
      absl::StrJoin(dims, ", "),
      "); samples are (N, features), (N, channels, length) or (N, channels, height, width)"));
}

class NpyDataset final : public Dataset {
 public:
  // file: null without samples.
  NpyDataset(std::unique_ptr<NpyFile> file, Shape shape, bool holds_bytes, Classes classes,
             std::vector<ChannelScale> scales)
      : file_(std::move(file)),
        shape_(std::move(shape)),
        holds_bytes_(holds_bytes),
        classes_(std::move(classes)),
        scales_(std::move(scales)) {}

  int64_t size() const override { return file_ == nullptr ? 0 : file_->count(); }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return std::ssize(classes_.names); }
  // A sample that cannot be read any more, or a value that is not finite, is the mean: 0.
  void CopySample(int64_t index, absl::Span<float> out) const override {
    std::vector<double> row(out.size());
    if (!file_->Read(index, absl::MakeSpan(row)).ok()) {
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    }
    const size_t plane = out.size() / scales_.size();
    for (size_t i = 0; i < out.size(); ++i) {
      const ChannelScale& scale = scales_[i / plane];
      const double value = (row[i] - scale.mean) / scale.deviation;
      out[i] = std::isfinite(value) ? static_cast<float>(value) : 0;
    }
  }
  bool reads_files() const override {
    return file_ != nullptr && file_->data_bytes() > kMostLookedThrough;
  }
  float outside(int64_t channel) const override {
    const ChannelScale& scale = scales_[static_cast<size_t>(channel)];
    return holds_bytes_ ? static_cast<float>(-scale.mean / scale.deviation) : 0;
  }
  int32_t label(int64_t index) const override {
    return classes_.labels[static_cast<size_t>(index)];
  }
  std::string class_name(int64_t label) const override {
    return classes_.names[static_cast<size_t>(label)];
  }
  std::string sample_name(int64_t index) const override {
    return absl::StrCat(file_->path(), "[", index, "]");
  }
  DataDescription Describe() const override {
    return {.kind = "npy",
            .sample = shape_,
            .classes = classes_.names,
            .scales = scales_,
            .holds_bytes = holds_bytes_};
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Unlabelled(const std::string& path) const override {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<NpyFile> file, NpyFile::Open(path));
    RUNNEL_ASSIGN_OR_RETURN(const Shape shape, SampleShape(*file));
    if (!(shape == shape_) || file->holds_bytes() != holds_bytes_) {
      const auto kind = [](bool holds_bytes) { return holds_bytes ? "bytes " : "numbers "; };
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": its samples are ", kind(file->holds_bytes()), shape.ToString(),
                       ", the model was trained on ", kind(holds_bytes_), shape_.ToString()));
    }
    std::vector<double> row(static_cast<size_t>(shape.elements()));
    for (int64_t i = 0; i < file->count(); ++i) {
      RUNNEL_RETURN_IF_ERROR(file->Read(i, absl::MakeSpan(row)));
      RUNNEL_RETURN_IF_ERROR(CheckFinite(*file, i, row));
    }
    Classes classes{classes_.names, std::vector<int32_t>(static_cast<size_t>(file->count()))};
    return std::make_unique<NpyDataset>(std::move(file), shape_, holds_bytes_, std::move(classes),
                                        scales_);
  }

 private:
  std::unique_ptr<NpyFile> file_;
  Shape shape_;
  bool holds_bytes_;
  Classes classes_;
  std::vector<ChannelScale> scales_;
};

// InvalidArgument names a sample with a number that is not finite.
absl::Status CheckAllFinite(const NpyFile& file, const Shape& shape) {
  if (!file.holds_floats() || file.data_bytes() > kMostLookedThrough) return absl::OkStatus();
  std::vector<double> row(static_cast<size_t>(shape.elements()));
  for (int64_t i = 0; i < file.count(); ++i) {
    RUNNEL_RETURN_IF_ERROR(file.Read(i, absl::MakeSpan(row)));
    RUNNEL_RETURN_IF_ERROR(CheckFinite(file, i, row));
  }
  return absl::OkStatus();
}

// One integer a sample.
absl::Status ReadLabels(const NpyFile& file, std::vector<int64_t>& labels) {
  const std::vector<int64_t>& dims = file.sample_dims();
  if (!(dims.empty() || (dims.size() == 1 && dims[0] == 1)))
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": its shape is (", file.count(), ", ", absl::StrJoin(dims, ", "),
                     "); labels are one number a sample, of shape (", file.count(),
                     ",): numpy.argmax(labels, 1) makes them of one column a class"));
  labels.reserve(static_cast<size_t>(file.count()));
  for (int64_t i = 0; i < file.count(); ++i) {
    double value = 0;
    RUNNEL_RETURN_IF_ERROR(file.Read(i, absl::MakeSpan(&value, 1)));
    if (value != std::floor(value) || std::abs(value) > 1e15) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": label ", i, " is ", value, ", which is no integer"));
    }
    labels.push_back(static_cast<int64_t>(value));
  }
  return absl::OkStatus();
}

// Two files that belong together.
struct Arrays {
  std::unique_ptr<NpyFile> samples;
  std::vector<int64_t> labels;
};

absl::StatusOr<Arrays> ReadArrays(const std::string& samples, const std::string& labels) {
  Arrays arrays;
  RUNNEL_ASSIGN_OR_RETURN(arrays.samples, NpyFile::Open(samples));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<NpyFile> file, NpyFile::Open(labels));
  if (arrays.samples->count() != file->count()) {
    return absl::InvalidArgumentError(absl::StrCat(samples, ": ", arrays.samples->count(),
                                                   " samples, ", labels, " ", file->count(),
                                                   " labels"));
  }
  RUNNEL_RETURN_IF_ERROR(ReadLabels(*file, arrays.labels));
  return arrays;
}

// Option test=SAMPLES;LABELS; without files if it was not given.
absl::StatusOr<Arrays> ReadTest(const Place& place, const NpyFile& train) {
  const std::string text = place.Option("test");
  if (text.empty()) return Arrays{};
  const std::vector<std::string> paths = absl::StrSplit(text, ';');
  if (paths.size() != 2)
    return absl::InvalidArgumentError(absl::StrCat("--data ", kUsage, ": test is '", text, "'"));
  RUNNEL_ASSIGN_OR_RETURN(Arrays test, ReadArrays(paths[0], paths[1]));
  if (test.samples->sample_dims() != train.sample_dims() ||
      test.samples->holds_bytes() != train.holds_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        paths[0], ": its samples are of another shape or type than ", train.path(), "'s"));
  }
  return test;
}

// Mean and deviation by channel; with scale=off numbers stay as they are. InvalidArgument: a number
// that is not finite.
absl::StatusOr<std::vector<ChannelScale>> Scales(const Place& place, const NpyFile& file,
                                                 const Shape& shape,
                                                 absl::Span<const int64_t> indices) {
  const std::string option = place.Option("scale");
  if (!option.empty() && option != "off") {
    return absl::InvalidArgumentError(
        absl::StrCat("--data ", kUsage, ": scale is '", option, "', not off"));
  }
  const auto read = [&file](int64_t index, absl::Span<double> row) -> absl::Status {
    RUNNEL_RETURN_IF_ERROR(file.Read(index, row));
    return CheckFinite(file, index, row);
  };
  RUNNEL_ASSIGN_OR_RETURN(std::vector<ChannelScale> scales,
                          MeasureScales(indices, shape[0], shape.elements() / shape[0], read));
  if (option == "off") scales.assign(scales.size(), {.mean = 0, .deviation = 1});
  return scales;
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadNpy(absl::string_view text, uint64_t seed) {
  RUNNEL_ASSIGN_OR_RETURN(const Place place,
                          ParsePlace(text, 2, {"test", "scale", "tokens"}, kUsage));
  if (!place.Option("tokens").empty()) return LoadNpyTokens(place, seed, kUsage);
  RUNNEL_ASSIGN_OR_RETURN(Arrays all, ReadArrays(place.paths[0], place.paths[1]));
  RUNNEL_ASSIGN_OR_RETURN(const Shape shape, SampleShape(*all.samples));
  RUNNEL_ASSIGN_OR_RETURN(Arrays test, ReadTest(place, *all.samples));
  RUNNEL_RETURN_IF_ERROR(CheckAllFinite(*all.samples, shape));
  if (test.samples != nullptr) RUNNEL_RETURN_IF_ERROR(CheckAllFinite(*test.samples, shape));
  // One numbering of both files' classes.
  const auto first_test = std::ssize(all.labels);
  all.labels.insert(all.labels.end(), test.labels.begin(), test.labels.end());
  RUNNEL_ASSIGN_OR_RETURN(Classes classes, ClassesOf(all.labels, place.paths[1]));
  all.labels = std::vector<int64_t>();
  Classes test_classes{classes.names, {classes.labels.begin() + first_test, classes.labels.end()}};
  classes.labels.resize(static_cast<size_t>(first_test));
  SplitIndices split;
  if (test.samples == nullptr) {
    split = SplitByClass(classes.labels, std::ssize(classes.names), seed);
  } else {
    split.train.resize(static_cast<size_t>(first_test));
    std::iota(split.train.begin(), split.train.end(), 0);
  }
  RUNNEL_ASSIGN_OR_RETURN(std::vector<ChannelScale> scales,
                          Scales(place, *all.samples, shape, split.train));
  const bool holds_bytes = all.samples->holds_bytes();
  auto train = std::make_shared<NpyDataset>(std::move(all.samples), shape, holds_bytes,
                                            std::move(classes), scales);
  DatasetSplits splits = SplitsOf(std::move(train), std::move(split));
  if (test.samples != nullptr) {
    splits.note.clear();
    splits.test = std::make_unique<NpyDataset>(std::move(test.samples), shape, holds_bytes,
                                               std::move(test_classes), std::move(scales));
  }
  return splits;
}

absl::StatusOr<std::unique_ptr<Dataset>> DescribedNpy(const DataDescription& description) {
  if (!description.vocabulary.empty()) return DescribedTokens(description);
  if (description.sample.rank() > 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the data's description: ", description.sample.ToString(), " is no sample of an array"));
  }
  return std::make_unique<NpyDataset>(nullptr, description.sample, description.holds_bytes,
                                      Classes{description.classes, {}}, description.scales);
}

}  // namespace runnel::data
