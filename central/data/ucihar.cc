#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "central/data/data_files.h"
#include "central/data/loaders.h"
#include "central/data/memory_datasets.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChannels = 9;
constexpr int64_t kLength = 128;
constexpr int64_t kWindow = kChannels * kLength;
constexpr int kClasses = 6;
constexpr const char* kSignals[kChannels] = {"body_acc_x",  "body_acc_y",  "body_acc_z",
                                             "body_gyro_x", "body_gyro_y", "body_gyro_z",
                                             "total_acc_x", "total_acc_y", "total_acc_z"};

struct Split {
  std::vector<float> values;  // [window][channel][time]
  std::vector<uint8_t> labels;
};

// Goes through a text file line by line and number by number.
class NumberScanner {
 public:
  NumberScanner(const fs::path& path, const std::string& text)
      : path_(path), next_line_(text.data()), end_(text.data() + text.size()) {}

  // Moves to the next line that is not blank; false at the end of the file.
  bool NextLine() {
    while (next_line_ != end_) {
      ++line_;
      at_ = next_line_;
      line_end_ = std::find(at_, end_, '\n');
      next_line_ = line_end_ == end_ ? end_ : line_end_ + 1;
      SkipBlanks();
      if (at_ != line_end_) return true;
    }
    return false;
  }
  // True: a number was there. False: the line is over.
  absl::StatusOr<bool> NextNumber(float& value) {
    SkipBlanks();
    if (at_ == line_end_) return false;
    double number = 0;
    const auto [next, error] = std::from_chars(at_, line_end_, number);
    if (error != std::errc() || !(next == line_end_ || IsBlank(*next))) {
      return Error("holds something that is not a number");
    }
    value = static_cast<float>(number);
    if (!std::isfinite(value)) return Error("holds a value that is not finite");
    at_ = next;
    return true;
  }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_.string(), ": line ", line_, " ", what));
  }

 private:
  static bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  void SkipBlanks() {
    while (at_ != line_end_ && IsBlank(*at_)) ++at_;
  }
  const fs::path& path_;
  const char* at_ = nullptr;
  const char* line_end_ = nullptr;
  const char* next_line_;
  const char* end_;
  int64_t line_ = 0;
};

absl::StatusOr<std::vector<uint8_t>> ReadLabels(const fs::path& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  NumberScanner scanner(path, text);
  std::vector<uint8_t> labels;
  while (scanner.NextLine()) {
    float label = 0;
    float more = 0;
    RUNNEL_RETURN_IF_ERROR(scanner.NextNumber(label).status());
    if (!(label >= 1 && label <= kClasses) || label != std::floor(label)) {
      return scanner.Error(absl::StrCat("has label ", label, ", not 1 to ", kClasses));
    }
    RUNNEL_ASSIGN_OR_RETURN(const bool has_more, scanner.NextNumber(more));
    if (has_more) return scanner.Error("has more than one label");
    labels.push_back(static_cast<uint8_t>(label - 1));
  }
  if (labels.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": holds no labels"));
  }
  return labels;
}

absl::Status ReadSignal(const fs::path& path, int64_t channel, Split& split) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  NumberScanner scanner(path, text);
  const int64_t windows = static_cast<int64_t>(split.labels.size());
  int64_t window = 0;
  for (; scanner.NextLine(); ++window) {
    if (window == windows) {
      return scanner.Error(absl::StrCat("is one window more than the ", windows, " labels"));
    }
    float* out = &split.values[window * kWindow + channel * kLength];
    int64_t count = 0;
    while (true) {
      float value = 0;
      RUNNEL_ASSIGN_OR_RETURN(const bool found, scanner.NextNumber(value));
      if (!found) break;
      if (count < kLength) out[count] = value;
      ++count;
    }
    if (count != kLength) {
      return scanner.Error(absl::StrCat("has ", count, " numbers, a window has ", kLength));
    }
  }
  if (window != windows) {
    return absl::DataLossError(absl::StrCat(path.string(), ": holds ", window, " windows, but ",
                                            windows,
                                            " have labels; the files do not belong together"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Split> ReadSplit(const fs::path& root, const std::string& name) {
  Split split;
  RUNNEL_ASSIGN_OR_RETURN(split.labels, ReadLabels(root / name / ("y_" + name + ".txt")));
  split.values.resize(split.labels.size() * kWindow);
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    const std::string file = absl::StrCat(kSignals[channel], "_", name, ".txt");
    RUNNEL_RETURN_IF_ERROR(ReadSignal(root / name / "Inertial Signals" / file, channel, split));
  }
  return split;
}

std::vector<ChannelScale> MeasureScales(const Split& split) {
  std::vector<ChannelScale> scales(kChannels);
  const int64_t windows = static_cast<int64_t>(split.labels.size());
  for (int64_t channel = 0; channel < kChannels; ++channel) {
    double sum = 0;
    double squares = 0;
    for (int64_t window = 0; window < windows; ++window) {
      const float* in = &split.values[window * kWindow + channel * kLength];
      for (int64_t t = 0; t < kLength; ++t) {
        sum += in[t];
        squares += double{in[t]} * in[t];
      }
    }
    const double count = static_cast<double>(windows * kLength);
    const double mean = sum / count;
    const double variance = squares / count - mean * mean;
    // A channel that never moves stays at zero.
    scales[channel] = {mean, variance > 1e-12 ? std::sqrt(variance) : 1};
  }
  return scales;
}

std::unique_ptr<Dataset> Standardise(Split split, const std::vector<ChannelScale>& scales) {
  for (size_t i = 0; i < split.values.size(); ++i) {
    const ChannelScale& scale = scales[i / kLength % kChannels];
    split.values[i] = static_cast<float>((split.values[i] - scale.mean) / scale.deviation);
  }
  return std::make_unique<SignalDataset>(Shape{kChannels, kLength}, kClasses,
                                         std::move(split.values), std::move(split.labels), scales);
}

absl::Status NothingThere(absl::Span<const fs::path> folders) {
  for (const fs::path& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const std::string path = it->path().string();
      const std::string name = it->path().filename().string();
      if (!absl::StrContains(absl::AsciiStrToLower(name), "har")) continue;
      const bool tar = absl::EndsWith(name, ".tar.gz");
      if (!tar && !absl::EndsWith(name, ".zip")) continue;
      return absl::NotFoundError(
          absl::StrCat("ucihar: ", path, " is still packed; unpack it with: mkdir -p ucihar && ",
                       tar ? "tar -xzf '" : "unzip '", path, tar ? "' -C ucihar" : "' -d ucihar",
                       ", then use --data-dir ucihar"));
    }
  }
  return absl::NotFoundError(
      absl::StrCat("ucihar: no train/y_train.txt in ", JoinPaths(folders),
                   "; --data-dir must name the unpacked folder 'UCI HAR Dataset'"));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadUciHar(absl::string_view data_dir, uint64_t) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<fs::path> folders,
                          SearchFolders("ucihar", data_dir,
                                        {"UCI HAR Dataset", "ucihar", "ucihar/UCI HAR Dataset",
                                         "ucihar-subset", "ucihar-subset/UCI HAR Dataset"}));
  for (const fs::path& folder : folders) {
    std::error_code error;
    if (!fs::is_regular_file(folder / "train" / "y_train.txt", error)) continue;
    RUNNEL_ASSIGN_OR_RETURN(Split train, ReadSplit(folder, "train"));
    RUNNEL_ASSIGN_OR_RETURN(Split test, ReadSplit(folder, "test"));
    const std::vector<ChannelScale> scales = MeasureScales(train);
    DatasetSplits splits;
    splits.train = Standardise(std::move(train), scales);
    splits.test = Standardise(std::move(test), scales);
    return splits;
  }
  return NothingThere(folders);
}

}  // namespace runnel::data
