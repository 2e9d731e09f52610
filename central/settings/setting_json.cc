#include "central/settings/setting_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "central/settings/run_fields.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Steps = std::vector<GradientBitsStep>;

template <typename T>
Json ValueToJson(const T& value) {
  return value;
}
// -1 in records.
Json ValueToJson(const std::optional<int64_t>& value) { return value.value_or(-1); }
Json ValueToJson(const CodecSchedule& codecs) { return codecs.text(); }
Json ValueToJson(const BackendOptions& options) { return options.text(); }
Json ValueToJson(const Steps& steps) { return GradientBitsText(steps); }

Json ValueToJson(const std::vector<std::string>& texts) { return absl::StrJoin(texts, ","); }

void ReadField(JsonObject& object, absl::string_view key, std::vector<std::string>& texts) {
  std::string text;
  object.Read(key, text);
  texts = absl::StrSplit(text, ',', absl::SkipEmpty());
}
void ReadField(JsonObject& object, absl::string_view key, Steps& steps) {
  std::string text;
  object.Read(key, text);
  if (text.empty()) return steps.clear();
  absl::StatusOr<Steps> read = ParseGradientBits(text);
  if (!read.ok()) {
    object.Note(absl::InvalidArgumentError(
        absl::StrCat("'", key, "' ", text, ": ", read.status().message())));
  } else {
    steps = *std::move(read);
  }
}
void ReadField(JsonObject& object, absl::string_view key, std::optional<int64_t>& value) {
  object.Read(key, value.emplace());
  if (value == -1) value.reset();
}
void ReadField(JsonObject& object, absl::string_view key, BackendOptions& options) {
  std::string text;
  object.Read(key, text);
  absl::StatusOr<BackendOptions> read = BackendOptions::Parse(text);
  if (read.ok()) options = *std::move(read);
  object.Note(read.status());
}
template <typename T>
void ReadField(JsonObject& object, absl::string_view key, T& value) {
  object.Read(key, value);
}

// A training setting that came with a later release has the value with which that run trained, not
// the one that this release would choose today.
absl::Status SetMissing(const RunField& field, RunSettings& settings) {
  const auto* training = std::get_if<const TrainingField*>(&field.member);
  if (training == nullptr || (*training)->always_stored) return absl::OkStatus();
  return SetMissing(**training, settings.training);
}

// Settings that earlier releases stored apart from those that now say the same.
void ReadRetired(const Json& json, JsonObject& object, RunSettings& settings) {
  std::string cost;
  double plan_mbps = 0;
  if (json.contains("cost")) object.Read("cost", cost);
  if (json.contains("plan-mbps")) object.Read("plan-mbps", plan_mbps);
  if (cost == "measured") settings.predictor.clear();
  if (plan_mbps > 0 && settings.links.empty()) settings.links = absl::StrCat(plan_mbps);
}

}  // namespace

Json RunSettingsToJson(const RunSettings& settings) {
  Json json = Json::object();
  for (const RunField& field : RunFields()) {
    // So "no milestones" and "the model's" differ.
    if (!ListSeparator(field).empty() && IsLeftOut(field, settings)) continue;
    json[std::string(field.flag.name)] =
        VisitSetting(field, settings, [](const auto& value) { return ValueToJson(value); });
  }
  return json;
}

absl::StatusOr<RunSettings> RunSettingsFromJson(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("settings: needs a JSON object");
  RunSettings settings;
  JsonObject object(json, "settings");
  for (const RunField& field : RunFields()) {
    if (!json.contains(std::string(field.flag.name))) {
      object.Note(SetMissing(field, settings));
      continue;
    }
    VisitSetting(field, settings, [&](auto& value) { ReadField(object, field.flag.name, value); });
  }
  ReadRetired(json, object, settings);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return settings;
}

Json TrainingToJson(const TrainingSettings& settings) {
  Json json = Json::object();
  for (const TrainingField& field : TrainingFields()) {
    if (!IsStored(field, settings)) continue;
    json[std::string(field.name)] =
        std::visit([&](auto member) { return ValueToJson(settings.*member); }, field.member);
  }
  return json;
}

absl::StatusOr<TrainingSettings> TrainingFromJson(const Json& json) {
  TrainingSettings settings;
  JsonObject object(json, "training");
  for (const TrainingField& field : TrainingFields()) {
    if (json.is_object() && !json.contains(std::string(field.name))) {
      object.Note(SetMissing(field, settings));
      continue;
    }
    std::visit([&](auto member) { ReadField(object, field.name, settings.*member); }, field.member);
  }
  object.Note(CheckTraining(settings));
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return settings;
}

}  // namespace runnel
