#include "predictor/profiles/profile_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr absl::string_view kMagic = "runnel-profile 1";
constexpr absl::string_view kColumns =
    "model first last batch seconds_1 spread_1 seconds_2 spread_2";
constexpr size_t kColumnCount = 8;
constexpr size_t kMaxText = 200;
constexpr int64_t kMaxBatch = 1 << 20;
constexpr double kMaxSeconds = 1e6;

absl::Status Wrong(size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("profile: line ", line, ": ", what));
}

// A field of the header: how it is read and written.
struct Field {
  absl::string_view key;
  std::string DeviceProfile::*text = nullptr;
  int64_t DeviceProfile::*count = nullptr;
  double DeviceProfile::*real = nullptr;
};

constexpr std::array<Field, 13> kFields = {{
    {"name", &DeviceProfile::name},
    {"family", &DeviceProfile::family},
    {"host", &DeviceProfile::host},
    {"date", &DeviceProfile::date},
    {"threads", nullptr, &DeviceProfile::threads},
    {"cpu_share", nullptr, nullptr, &DeviceProfile::cpu_share},
    {"recipe", &DeviceProfile::recipe},
    {"backend", &DeviceProfile::backend},
    {"numerics_class", &DeviceProfile::numerics_class},
    {"batch", nullptr, &DeviceProfile::batch},
    {"load", &DeviceProfile::load},
    {"clock", &DeviceProfile::clock},
    {"repetitions", nullptr, &DeviceProfile::repetitions},
}};

bool IsPlainText(absl::string_view text) {
  return text.size() <= kMaxText && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isprint(static_cast<unsigned char>(c));
         });
}

absl::Status ReadField(size_t line, absl::string_view text, std::set<absl::string_view>& seen,
                       DeviceProfile& profile) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const auto field = std::find_if(kFields.begin(), kFields.end(),
                                  [&](const Field& f) { return f.key == parts.first; });
  if (field == kFields.end())
    return Wrong(line, absl::StrCat("'", parts.first.substr(0, 40), "' is no key"));
  if (!seen.insert(field->key).second)
    return Wrong(line, absl::StrCat(field->key, " is there twice"));
  const absl::string_view value = absl::StripAsciiWhitespace(parts.second);
  if (field->text != nullptr) {
    if (value.empty() || !IsPlainText(value)) {
      return Wrong(line,
                   absl::StrCat(field->key, " must be 1 to ", kMaxText, " printable characters"));
    }
    profile.*field->text = std::string(value);
  } else if (field->count != nullptr) {
    if (!absl::SimpleAtoi(value, &(profile.*field->count)) || profile.*field->count < 1 ||
        profile.*field->count > kMaxBatch) {
      return Wrong(line, absl::StrCat(field->key, " must be a number from 1 to ", kMaxBatch));
    }
  } else if (!absl::SimpleAtod(value, &(profile.*field->real)) || !(profile.*field->real > 0) ||
             profile.*field->real > 1) {
    return Wrong(line, absl::StrCat(field->key, " must be above 0 and at most 1"));
  }
  return absl::OkStatus();
}

bool ReadSeconds(absl::string_view text, bool may_be_zero, double* value) {
  return absl::SimpleAtod(text, value) && std::isfinite(*value) && *value <= kMaxSeconds &&
         (may_be_zero ? *value >= 0 : *value > 0);
}

absl::StatusOr<SubModelTime> ReadLine(size_t line, absl::string_view text) {
  const std::vector<absl::string_view> columns = absl::StrSplit(text, ' ');
  if (columns.size() != kColumnCount) {
    return Wrong(line, absl::StrCat("has ", columns.size(), " columns, not ", kColumnCount));
  }
  SubModelTime row;
  row.model = std::string(columns[0]);
  if (row.model.empty() || !IsPlainText(row.model)) return Wrong(line, "model has no name");
  if (!absl::SimpleAtoi(columns[1], &row.range.first_layer) ||
      !absl::SimpleAtoi(columns[2], &row.range.last_layer) || row.range.first_layer < 0 ||
      row.range.last_layer < row.range.first_layer || row.range.last_layer >= kMaxLayers) {
    return Wrong(line, "first and last must be layers of a model, in order");
  }
  if (!absl::SimpleAtoi(columns[3], &row.batch) || row.batch < 1 || row.batch > kMaxBatch) {
    return Wrong(line, absl::StrCat("batch must be a number from 1 to ", kMaxBatch));
  }
  if (!ReadSeconds(columns[4], false, &row.seconds_1) ||
      !ReadSeconds(columns[5], true, &row.spread_1) ||
      !ReadSeconds(columns[6], true, &row.seconds_2) ||
      !ReadSeconds(columns[7], true, &row.spread_2)) {
    return Wrong(line, "seconds must be above 0 (the second pass: or 0), spreads 0 or more");
  }
  return row;
}

}  // namespace

absl::StatusOr<DeviceProfile> ParseProfile(absl::string_view text) {
  if (text.size() > kMaxProfileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("profile: ", text.size(), " bytes, over the limit of ", kMaxProfileBytes));
  }
  DeviceProfile profile;
  std::set<absl::string_view> seen;
  std::set<std::tuple<std::string, LayerRange, int64_t>> keys;
  size_t line = 0;
  bool in_table = false;
  for (absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++line;
    const absl::string_view row = absl::StripTrailingAsciiWhitespace(raw);
    if (line == 1) {
      if (row != kMagic) return Wrong(line, absl::StrCat("is not '", kMagic, "'"));
    } else if (row.empty()) {
      continue;
    } else if (row == kColumns) {
      in_table = true;
    } else if (!in_table) {
      RUNNEL_RETURN_IF_ERROR(ReadField(line, row, seen, profile));
    } else {
      if (profile.sub_models.size() == kMaxProfileLines) return Wrong(line, "is one too many");
      RUNNEL_ASSIGN_OR_RETURN(SubModelTime time, ReadLine(line, row));
      if (!keys.insert({time.model, time.range, time.batch}).second)
        return Wrong(line, "is there twice");
      profile.sub_models.push_back(std::move(time));
    }
  }
  for (const Field& field : kFields) {
    if (seen.count(field.key) == 0) return Wrong(line, absl::StrCat("there is no ", field.key));
  }
  if (profile.sub_models.empty()) return Wrong(line, "there is no sub-model");
  return profile;
}

std::string FormatProfile(const DeviceProfile& profile) {
  std::string text = absl::StrCat(kMagic, "\n");
  for (const Field& field : kFields) {
    absl::StrAppend(&text, field.key, ": ");
    if (field.text != nullptr) absl::StrAppend(&text, profile.*field.text);
    if (field.count != nullptr) absl::StrAppend(&text, profile.*field.count);
    if (field.real != nullptr) absl::StrAppend(&text, profile.*field.real);
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, kColumns, "\n");
  for (const SubModelTime& row : profile.sub_models) {
    absl::StrAppendFormat(&text, "%s %d %d %d %.7g %.3g %.7g %.3g\n", row.model,
                          row.range.first_layer, row.range.last_layer, row.batch, row.seconds_1,
                          row.spread_1, row.seconds_2, row.spread_2);
  }
  return text;
}

}  // namespace runnel
