#include "central/data/data_description.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr absl::string_view kFormat = "runnel-data 1";
constexpr size_t kMostNames = 1 << 20;             // classes, columns and categories, each
constexpr int64_t kMostTokens = int64_t{1} << 24;  // Dataset's

absl::Status ReadScale(absl::string_view text, DataDescription& description) {
  const std::pair<absl::string_view, absl::string_view> numbers = absl::StrSplit(text, ' ');
  ChannelScale scale;
  const bool is_scale = absl::SimpleAtod(numbers.first, &scale.mean) &&
                        absl::SimpleAtod(numbers.second, &scale.deviation) &&
                        std::isfinite(scale.mean) && std::isfinite(scale.deviation) &&
                        scale.deviation > 0;
  if (!is_scale || description.scales.size() == kMostNames)
    return absl::InvalidArgumentError("is no mean and deviation");
  description.scales.push_back(scale);
  return absl::OkStatus();
}

absl::Status ReadShape(absl::string_view text, Shape& shape) {
  std::vector<int64_t> dims;
  for (const absl::string_view part : absl::StrSplit(text, 'x')) {
    if (!absl::SimpleAtoi(part, &dims.emplace_back()))
      return absl::InvalidArgumentError("is no shape");
  }
  RUNNEL_ASSIGN_OR_RETURN(shape, Shape::Create(dims));
  return absl::OkStatus();
}

absl::Status ReadLine(absl::string_view key, absl::string_view value,
                      DataDescription& description) {
  if (key == "sample") return ReadShape(value, description.sample);
  if (key == "scale") return ReadScale(value, description);
  if (key == "bytes" && value.empty()) {
    description.holds_bytes = true;
    return absl::OkStatus();
  }
  if (key == "tokens") {
    if (absl::SimpleAtoi(value, &description.tokens)) return absl::OkStatus();
    return absl::InvalidArgumentError("is no number");
  }
  std::string name;
  if (!absl::CUnescape(value, &name)) return absl::InvalidArgumentError("is not escaped as in C");
  std::vector<TableColumn>& columns = description.columns;
  if (key == "kind") {
    description.kind = std::move(name);
  } else if (key == "vocabulary") {
    description.vocabulary = std::move(name);
  } else if (key == "class" && description.classes.size() < kMostNames) {
    description.classes.push_back(std::move(name));
  } else if (key == "column" && columns.size() < kMostNames) {
    columns.push_back({std::move(name), {}});
  } else if (key == "category" && !columns.empty() &&
             columns.back().categories.size() < kMostNames) {
    columns.back().categories.push_back(std::move(name));
  } else {
    return absl::InvalidArgumentError("is no field of a description");
  }
  return absl::OkStatus();
}

// Of samples of tokens.
bool IsOfTokens(const DataDescription& description) {
  if (!description.scales.empty() || !description.columns.empty() || description.holds_bytes)
    return false;
  const bool is_text = description.kind == "wikitext2" && description.tokens == 0;
  if (description.vocabulary == "bytes") return is_text && description.classes.empty();
  if (description.vocabulary == "words") return is_text;
  return description.vocabulary == "numbers" && description.kind == "npy" &&
         description.tokens >= 2 && description.tokens <= kMostTokens;
}

// What the fields owe each other.
absl::Status CheckDescription(const DataDescription& description) {
  const auto wrong = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("the data's description: ", what...));
  };
  const Shape& sample = description.sample;
  if (description.kind.empty()) return wrong("has no kind");
  if (sample.rank() == 0) return wrong("has no shape of a sample");
  if (!description.vocabulary.empty() || description.tokens != 0) {
    if (IsOfTokens(description) && sample.rank() == 1) return absl::OkStatus();
    return wrong("has a vocabulary, and what does not belong to one");
  }
  if (description.classes.empty()) return wrong("has no classes");
  if (static_cast<int64_t>(description.scales.size()) != sample[0])
    return wrong("has ", description.scales.size(), " scales for samples ", sample.ToString());
  if (description.columns.empty()) return absl::OkStatus();
  int64_t features = 0;
  for (const TableColumn& column : description.columns) features += column.features();
  if (sample.rank() == 1 && features == sample[0]) return absl::OkStatus();
  return wrong("has columns of ", features, " features for samples ", sample.ToString());
}

}  // namespace

std::string DescriptionText(const DataDescription& description) {
  if (description.kind.empty()) return "";
  std::string text = absl::StrCat(kFormat, "\nkind ", absl::CEscape(description.kind), "\nsample ",
                                  absl::StrJoin(description.sample.dims(), "x"), "\n");
  if (!description.vocabulary.empty())
    absl::StrAppend(&text, "vocabulary ", absl::CEscape(description.vocabulary), "\n");
  if (description.tokens != 0) absl::StrAppend(&text, "tokens ", description.tokens, "\n");
  if (description.holds_bytes) absl::StrAppend(&text, "bytes\n");
  for (const std::string& name : description.classes)
    absl::StrAppend(&text, "class ", absl::CEscape(name), "\n");
  for (const ChannelScale& scale : description.scales)
    absl::StrAppendFormat(&text, "scale %.17g %.17g\n", scale.mean, scale.deviation);
  for (const TableColumn& column : description.columns) {
    absl::StrAppend(&text, "column ", absl::CEscape(column.name), "\n");
    for (const std::string& category : column.categories)
      absl::StrAppend(&text, "category ", absl::CEscape(category), "\n");
  }
  return text;
}

absl::StatusOr<DataDescription> ParseDescription(absl::string_view text) {
  DataDescription description;
  if (text.empty()) return description;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (number == 1 && line != kFormat)
      return absl::InvalidArgumentError("the data's description: is of another form");
    if (number == 1 || line.empty()) continue;
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    if (const absl::Status read = ReadLine(field.first, field.second, description); !read.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("the data's description: line ", number, ": '",
                                                     absl::CEscape(line.substr(0, 40)),
                                                     "': ", read.message()));
    }
  }
  RUNNEL_RETURN_IF_ERROR(CheckDescription(description));
  return description;
}

}  // namespace runnel
