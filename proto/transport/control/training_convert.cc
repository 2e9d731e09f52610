// Training settings as a message: one Setting a row of TrainingFields.

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/training_fields.h"
#include "proto/transport/control/model_convert.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {
namespace {

constexpr size_t kMaxSettingText = 65536;

absl::Status Wrong(absl::string_view name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("training.", name, ": ", what));
}

void SetValue(uint64_t value, proto::Setting& setting) { setting.set_natural(value); }
void SetValue(int64_t value, proto::Setting& setting) { setting.set_integer(value); }
void SetValue(double value, proto::Setting& setting) { setting.set_real(value); }
void SetValue(const std::vector<int64_t>& values, proto::Setting& setting) {
  setting.mutable_integers()->mutable_values()->Assign(values.begin(), values.end());
}
void SetValue(const std::string& value, proto::Setting& setting) { setting.set_text(value); }
void SetValue(const std::vector<GradientBitsStep>& steps, proto::Setting& setting) {
  setting.set_text(GradientBitsText(steps));
}

absl::Status GetValue(const proto::Setting& setting, uint64_t& value) {
  if (!setting.has_natural()) return Wrong(setting.name(), "is no natural number");
  value = setting.natural();
  return absl::OkStatus();
}

absl::Status GetValue(const proto::Setting& setting, int64_t& value) {
  if (!setting.has_integer()) return Wrong(setting.name(), "is no integer");
  value = setting.integer();
  return absl::OkStatus();
}

absl::Status GetValue(const proto::Setting& setting, double& value) {
  if (!setting.has_real()) return Wrong(setting.name(), "is no real number");
  value = setting.real();
  return absl::OkStatus();
}

absl::Status GetValue(const proto::Setting& setting, std::vector<int64_t>& values) {
  if (!setting.has_integers()) return Wrong(setting.name(), "is no list of integers");
  const auto& given = setting.integers().values();
  if (given.size() > static_cast<int>(kMaxSettingList)) {
    return Wrong(setting.name(), absl::StrCat("has ", given.size(), " values, at most ",
                                              kMaxSettingList, " are allowed"));
  }
  values.assign(given.begin(), given.end());
  return absl::OkStatus();
}

absl::Status GetValue(const proto::Setting& setting, std::string& value) {
  if (!setting.has_text()) return Wrong(setting.name(), "is no text");
  if (setting.text().size() > kMaxSettingText) {
    return Wrong(setting.name(), absl::StrCat("has ", setting.text().size(), " bytes, at most ",
                                              kMaxSettingText, " are allowed"));
  }
  value = setting.text();
  return absl::OkStatus();
}

absl::Status GetValue(const proto::Setting& setting, std::vector<GradientBitsStep>& steps) {
  std::string text;
  RUNNEL_RETURN_IF_ERROR(GetValue(setting, text));
  absl::StatusOr<std::vector<GradientBitsStep>> parsed = ParseGradientBits(text);
  if (!parsed.ok()) return Wrong(setting.name(), parsed.status().message());
  steps = *std::move(parsed);
  return absl::OkStatus();
}

using SettingsByName = std::map<absl::string_view, const proto::Setting*>;

absl::StatusOr<SettingsByName> ByName(const proto::TrainingSettings& message) {
  RUNNEL_RETURN_IF_ERROR(CheckCount("training.settings", message.settings_size(), 0,
                                    static_cast<int64_t>(TrainingFields().size())));
  SettingsByName by_name;
  for (const proto::Setting& setting : message.settings()) {
    RUNNEL_RETURN_IF_ERROR(CheckName("training.settings.name", setting.name()));
    if (FindTrainingField(setting.name()) == nullptr) {
      return Wrong(setting.name(), "is no setting that this release knows");
    }
    if (!by_name.emplace(setting.name(), &setting).second) {
      return Wrong(setting.name(), "is given twice");
    }
  }
  return by_name;
}

}  // namespace

proto::TrainingSettings ToProto(const TrainingSettings& settings) {
  proto::TrainingSettings message;
  for (const TrainingField& field : TrainingFields()) {
    if (!IsStored(field, settings)) continue;
    proto::Setting& setting = *message.add_settings();
    setting.set_name(std::string(field.name));
    std::visit([&](auto member) { SetValue(settings.*member, setting); }, field.member);
  }
  return message;
}

absl::StatusOr<TrainingSettings> FromProto(const proto::TrainingSettings& message) {
  RUNNEL_ASSIGN_OR_RETURN(const SettingsByName by_name, ByName(message));
  TrainingSettings settings;
  const auto in_training = [](const absl::Status& status) {
    return status.ok() ? status
                       : absl::InvalidArgumentError(absl::StrCat("training.", status.message()));
  };
  for (const TrainingField& field : TrainingFields()) {
    const auto at = by_name.find(field.name);
    if (at == by_name.end()) {
      RUNNEL_RETURN_IF_ERROR(in_training(SetMissing(field, settings)));
      continue;
    }
    RUNNEL_RETURN_IF_ERROR(std::visit(
        [&](auto member) { return GetValue(*at->second, settings.*member); }, field.member));
  }
  RUNNEL_RETURN_IF_ERROR(in_training(CheckTraining(settings)));
  const absl::Status batching = MakeBatching(settings).status();
  if (!batching.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("training: ", batching.message()));
  }
  return settings;
}

}  // namespace runnel
