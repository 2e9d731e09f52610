#pragma once

// The contract of a data set: samples that central holds and feeds to stage 0; labels that it feeds
// to the loss.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "central/data/data_description.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// One split. Immutable after loading; any thread.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // One sample, without batch: (1,28,28), (9,128), (3,32,32).
  virtual const Shape& sample_shape() const = 0;
  virtual int64_t classes() const = 0;
  // Writes sample `index`, normalised, as sample_shape().elements() floats; tokens as whole numbers.
  // 0 <= index < size().
  virtual void CopySample(int64_t index, absl::Span<float> out) const = 0;
  // CopySample reads files, or may have to: whoever knows what is needed next lets other threads
  // begin (read_ahead.h).
  virtual bool reads_files() const { return false; }
  // Value around a sample in this channel, in CopySample's units: an image's black.
  virtual float outside(int64_t channel) const {
    (void)channel;
    return 0;
  }
  // Samples are tokens, whole numbers in [0, tokens()), at most kMostTokens; they travel as i32. 0:
  // samples travel as f32.
  virtual int64_t tokens() const { return 0; }
  virtual int64_t labels_per_sample() const { return 1; }
  // Of the sample's labels the one that is predicted: of a text the token behind its last one.
  virtual int64_t predicted_label(int64_t index) const {
    (void)index;
    return labels_per_sample() - 1;
  }
  // Samples [0, new_samples()) are new, the others replayed in this session of learning: each
  // mini-batch has its share of both (central/data/latents/mixed_order.h).
  virtual int64_t new_samples() const { return 0; }
  virtual int64_t session() const { return 0; }
  // In [0, classes). Those of sample i begin at index i * labels_per_sample().
  virtual int32_t label(int64_t index) const = 0;
  // The class's name, where the data have names; else its number.
  virtual std::string class_name(int64_t label) const { return std::to_string(label); }
  // What a sample is called where its prediction is printed: a picture's path, a table's line.
  virtual std::string sample_name(int64_t index) const { return std::to_string(index); }
  // What stays of the set with models that are trained on it; without a kind: nothing.
  virtual DataDescription Describe() const { return {}; }
  // Samples without labels of the file or folder, read and normalised as these are; their labels are
  // 0. NotFound, InvalidArgument, one line: they are of another shape or type, damaged, or this data
  // set has no such samples.
  virtual absl::StatusOr<std::unique_ptr<Dataset>> Unlabelled(const std::string& path) const;

  // Whole numbers up to here are exact in FP32.
  static constexpr int64_t kMostTokens = int64_t{1} << 24;
};

struct DatasetSplits {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  std::string note;  // what was left out, a line for people; empty: nothing
  // Evaluated in place of the test; null: the test is.
  std::unique_ptr<Dataset> validation = nullptr;
};

struct LoadRequest {
  absl::string_view place;  // DatasetRow::own_place of the user's own data, else --data-dir
  uint64_t seed = 1;        // for generated sets, and for the split of the user's own
  // Told the share that is done, [0, 1], by sets that look at each sample; may be null.
  std::function<void(double share)> on_progress = nullptr;

  void Tell(double share) const {
    if (on_progress != nullptr) on_progress(share);
  }
};

struct DatasetRow {
  absl::string_view name;
  absl::string_view summary;
  bool needs_data_dir;
  absl::string_view augmentation;  // default of training: "off", "crop,flip"
  // Loads the splits. NotFound names the missing file and the folder; InvalidArgument / DataLoss
  // name the file, the place in it and the error (truncated, label out of range, bad magic).
  absl::StatusOr<DatasetSplits> (*load)(const LoadRequest& request);
  // Of the user's own data what stands behind the name and a colon: "FILE,..."; load's `place`.
  // Empty: a set that everybody has, whose place is --data-dir. A model takes the shape and the
  // classes of the user's own data; the others must fit the model as it is.
  absl::string_view own_place = "";
  // A data set without samples whose Unlabelled reads files of this kind as `description` says.
  // Null: the row reads none. InvalidArgument: no description that a set of this kind gives.
  absl::StatusOr<std::unique_ptr<Dataset>> (*described)(const DataDescription& description) =
      nullptr;

  bool is_own() const { return !own_place.empty(); }
};

// The table, builtin_datasets.cc.
absl::Span<const DatasetRow> BuiltinDatasets();
// Of "cifar10" or "csv:FILE". InvalidArgument lists what there is.
absl::StatusOr<const DatasetRow*> FindDataset(absl::string_view text);
// "mnist", "csv:FILE", ...
std::vector<std::string> DatasetNames();
// Loads the set that `text` names. InvalidArgument: it needs a data_dir; else as DatasetRow::load.
absl::StatusOr<DatasetSplits> LoadDataset(absl::string_view text, absl::string_view data_dir,
                                          uint64_t seed,
                                          std::function<void(double share)> on_progress = nullptr);
// As DatasetRow::described of the row that the description's kind names. InvalidArgument: there is no
// such row, or it reads no samples without labels.
absl::StatusOr<std::unique_ptr<Dataset>> DescribedDataset(const DataDescription& description);

}  // namespace runnel
