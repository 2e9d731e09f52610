#include "predictor/profiles/profile_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

constexpr absl::string_view kFormat = "runnel-profile";
constexpr int64_t kVersion = 2;
constexpr std::array<absl::string_view, 8> kColumns = {
    "model", "first", "last", "batch", "seconds_1", "spread_1", "seconds_2", "spread_2"};
constexpr size_t kMaxText = 200;
constexpr int64_t kMaxBatch = 1 << 20;
constexpr double kMaxSeconds = 1e6;

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

// A field of the head: how it is read and written.
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
  return !text.empty() && text.size() <= kMaxText &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isprint(static_cast<unsigned char>(c)); });
}

absl::Status CheckField(const Field& field, const DeviceProfile& profile) {
  const auto check = [&field](bool is_good, absl::string_view needed) {
    return is_good ? absl::OkStatus() : Wrong(absl::StrCat("'", field.key, "' must be ", needed));
  };
  if (field.text != nullptr) {
    return check(IsPlainText(profile.*field.text),
                 absl::StrCat("1 to ", kMaxText, " printable characters"));
  }
  if (field.count != nullptr) {
    return check(profile.*field.count >= 1 && profile.*field.count <= kMaxBatch,
                 absl::StrCat("a number from 1 to ", kMaxBatch));
  }
  return check(profile.*field.real > 0 && profile.*field.real <= 1, "above 0 and at most 1");
}

bool IsTime(double seconds) { return seconds >= 0 && seconds <= kMaxSeconds; }

absl::StatusOr<SubModelTime> ReadRow(const Json& json) {
  if (!json.is_array() || json.size() != kColumns.size())
    return Wrong(absl::StrCat("needs an array of ", kColumns.size(), " columns"));
  SubModelTime row;
  RUNNEL_RETURN_IF_ERROR(ReadValue(json[0], kColumns[0], row.model));
  RUNNEL_RETURN_IF_ERROR(ReadValue(json[1], kColumns[1], row.range.first_layer));
  RUNNEL_RETURN_IF_ERROR(ReadValue(json[2], kColumns[2], row.range.last_layer));
  RUNNEL_RETURN_IF_ERROR(ReadValue(json[3], kColumns[3], row.batch));
  double* const times[] = {&row.seconds_1, &row.spread_1, &row.seconds_2, &row.spread_2};
  for (size_t i = 0; i < 4; ++i)
    RUNNEL_RETURN_IF_ERROR(ReadValue(json[4 + i], kColumns[4 + i], *times[i]));
  if (!IsPlainText(row.model)) return Wrong("'model' has no name");
  if (row.range.first_layer < 0 || row.range.last_layer < row.range.first_layer ||
      row.range.last_layer >= kMaxLayers) {
    return Wrong("'first' and 'last' must be layers of a model, in order");
  }
  if (row.batch < 1 || row.batch > kMaxBatch)
    return Wrong(absl::StrCat("'batch' must be a number from 1 to ", kMaxBatch));
  if (row.seconds_1 == 0 || !std::all_of(std::begin(times), std::end(times),
                                         [](const double* time) { return IsTime(*time); })) {
    return Wrong("seconds must be above 0 (the second pass: or 0), spreads 0 or more");
  }
  return row;
}

absl::StatusOr<std::vector<SubModelTime>> ReadRows(const Json& json) {
  if (json.empty()) return Wrong("there is no sub-model");
  if (json.size() > kMaxProfileLines)
    return Wrong(absl::StrCat("more than ", kMaxProfileLines, " sub-models"));
  std::vector<SubModelTime> rows;
  std::set<std::tuple<std::string, LayerRange, int64_t>> keys;
  for (const Json& element : json) {
    absl::StatusOr<SubModelTime> row = ReadRow(element);
    if (row.ok() && !keys.insert({row->model, row->range, row->batch}).second)
      row = Wrong("is there twice");
    if (!row.ok())
      return Wrong(absl::StrCat("sub_models[", rows.size(), "]: ", row.status().message()));
    rows.push_back(*std::move(row));
  }
  return rows;
}

}  // namespace

absl::Status CheckIsTimed(absl::string_view numerics_class) {
  if (!absl::EndsWith(numerics_class, kEmulatedClassEnd)) return absl::OkStatus();
  return Wrong(absl::StrCat("'numerics_class' is ", numerics_class,
                            ": an emulator's times are no processor's, nothing can be predicted "
                            "from them"));
}

absl::StatusOr<DeviceProfile> ParseProfile(absl::string_view text) {
  if (text.size() > kMaxProfileBytes) {
    return Wrong(
        absl::StrCat("profile: ", text.size(), " bytes, over the limit of ", kMaxProfileBytes));
  }
  if (absl::StartsWith(text, "runnel-profile 1\n")) {
    return Wrong(
        "profile: is of version 1, this program reads 2: measure it anew with runnel-lab profile");
  }
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  DeviceProfile profile;
  JsonObject object(json, "profile");
  object.Format(kFormat, kVersion);
  for (const Field& field : kFields) {
    if (field.text != nullptr) object.Read(field.key, profile.*field.text);
    if (field.count != nullptr) object.Read(field.key, profile.*field.count);
    if (field.real != nullptr) object.Read(field.key, profile.*field.real);
    object.Note(CheckField(field, profile));
  }
  object.Note(CheckIsTimed(profile.numerics_class));
  std::string columns;
  object.Read("columns", columns);
  if (columns != absl::StrJoin(kColumns, " "))
    object.Note(Wrong(absl::StrCat("'columns' must be '", absl::StrJoin(kColumns, " "), "'")));
  absl::StatusOr<std::vector<SubModelTime>> rows = ReadRows(object.Array("sub_models"));
  object.Note(rows.status());
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  profile.sub_models = *std::move(rows);
  return profile;
}

std::string FormatProfile(const DeviceProfile& profile) {
  Json head = {{"format", kFormat}, {"version", kVersion}};
  for (const Field& field : kFields) {
    Json& value = head[std::string(field.key)];
    if (field.text != nullptr) value = profile.*field.text;
    if (field.count != nullptr) value = profile.*field.count;
    if (field.real != nullptr) value = profile.*field.real;
  }
  head["columns"] = absl::StrJoin(kColumns, " ");
  std::vector<Json> rows;
  for (const SubModelTime& row : profile.sub_models) {
    rows.push_back({row.model, row.range.first_layer, row.range.last_layer, row.batch,
                    Rounded(row.seconds_1, 7), Rounded(row.spread_1, 3), Rounded(row.seconds_2, 7),
                    Rounded(row.spread_2, 3)});
  }
  return DumpRows(head, "sub_models", rows);
}

}  // namespace runnel
