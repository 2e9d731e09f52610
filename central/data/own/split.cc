#include "central/data/own/split.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

constexpr size_t kTestShare = 5;
// Of the mean's square; less is what rounding makes of equal values.
constexpr double kLeastVariance = 1e-16;

// Integers by their numbers, before all other texts.
struct ByNumber {
  bool operator()(const std::string& a, const std::string& b) const {
    int64_t x = 0, y = 0;
    const bool is_x = absl::SimpleAtoi(a, &x), is_y = absl::SimpleAtoi(b, &y);
    if (is_x && is_y && x != y) return x < y;
    return is_x == is_y ? a < b : is_x;
  }
};

}  // namespace

SplitIndices SplitByClass(absl::Span<const int32_t> labels, int64_t classes, uint64_t seed) {
  std::vector<std::vector<int64_t>> by_class(static_cast<size_t>(classes));
  for (size_t i = 0; i < labels.size(); ++i)
    by_class[static_cast<size_t>(labels[i])].push_back(static_cast<int64_t>(i));
  SplitIndices split;
  for (size_t c = 0; c < by_class.size(); ++c) {
    std::vector<int64_t>& indices = by_class[c];
    // Epochs shuffle with index 0.
    const CounterRandom random(seed, RandomPurpose::kShuffle, 1 + c, 0);
    for (size_t i = indices.size(); i > 1; --i)
      std::swap(indices[i - 1], indices[random.Below(i, static_cast<uint32_t>(i))]);
    const size_t kept = std::max(indices.size() / kTestShare, size_t{indices.size() > 1});
    split.test.insert(split.test.end(), indices.begin(), indices.begin() + kept);
    split.train.insert(split.train.end(), indices.begin() + kept, indices.end());
  }
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.test.begin(), split.test.end());
  return split;
}

DatasetSplits SplitsOf(std::shared_ptr<const Dataset> all, SplitIndices indices) {
  DatasetSplits splits;
  if (indices.test.empty()) {
    splits.note =
        "no class of the data has two samples: none is kept for the test, and accuracy is not "
        "measured";
  }
  splits.train = std::make_unique<Subset>(all, std::move(indices.train));
  splits.test = std::make_unique<Subset>(std::move(all), std::move(indices.test));
  return splits;
}

namespace {

template <typename Label, typename Order>
absl::StatusOr<Classes> ClassesBy(absl::Span<const Label> labels, absl::string_view where) {
  std::map<Label, int32_t, Order> numbers;
  for (const Label& label : labels) numbers.emplace(label, 0);
  if (numbers.size() < 2 || numbers.size() > kMaxClasses) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": has ", numbers.size(),
                                                   numbers.size() == 1 ? " class" : " classes",
                                                   "; training needs 2 to ", kMaxClasses));
  }
  Classes classes;
  for (auto& [name, number] : numbers) {
    number = static_cast<int32_t>(classes.names.size());
    classes.names.push_back(absl::StrCat(name));
  }
  classes.labels.reserve(labels.size());
  for (const Label& label : labels) classes.labels.push_back(numbers.at(label));
  return classes;
}

}  // namespace

absl::StatusOr<Classes> ClassesOf(absl::Span<const std::string> labels, absl::string_view where) {
  return ClassesBy<std::string, ByNumber>(labels, where);
}
absl::StatusOr<Classes> ClassesOf(absl::Span<const int64_t> labels, absl::string_view where) {
  return ClassesBy<int64_t, std::less<>>(labels, where);
}

std::vector<int64_t> ScaledOf(absl::Span<const int64_t> indices) {
  const size_t step = (indices.size() + kMostScaled - 1) / kMostScaled;
  std::vector<int64_t> scaled;
  for (size_t i = 0; i < indices.size(); i += step) scaled.push_back(indices[i]);
  return scaled;
}

absl::StatusOr<std::vector<ChannelScale>> MeasureScales(absl::Span<const int64_t> indices,
                                                        int64_t channels, int64_t plane,
                                                        const ReadSampleFn& read) {
  // Of differences from the channel's first value, whose squares do not swamp the deviation.
  struct Sums {
    double first = 0, count = 0, sum = 0, squares = 0;
  };
  std::vector<Sums> sums(static_cast<size_t>(channels));
  std::vector<double> sample(static_cast<size_t>(channels * plane));
  for (const int64_t index : ScaledOf(indices)) {
    RUNNEL_RETURN_IF_ERROR(read(index, absl::MakeSpan(sample)));
    for (size_t e = 0; e < sample.size(); ++e) {
      Sums& channel = sums[e / static_cast<size_t>(plane)];
      if (!std::isfinite(sample[e])) continue;
      if (channel.count == 0) channel.first = sample[e];
      const double value = sample[e] - channel.first;
      channel.count += 1;
      channel.sum += value;
      channel.squares += value * value;
    }
  }
  std::vector<ChannelScale> scales;
  for (const Sums& channel : sums) {
    const double count = std::max(channel.count, 1.0), beyond = channel.sum / count;
    const double mean = channel.first + beyond;
    const double variance = channel.squares / count - beyond * beyond;
    const bool varies = variance > kLeastVariance * mean * mean && variance > 0;
    scales.push_back({mean, varies ? std::sqrt(variance) : 1});
  }
  return scales;
}

}  // namespace runnel::data
