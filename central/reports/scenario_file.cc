#include "central/reports/scenario_file.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/planning/live/given_links.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr int64_t kMaxFileBytes = 16 << 20;

struct BuiltinScenario {
  absl::string_view name;
  absl::string_view json;
};
constexpr BuiltinScenario kBuiltinScenarios[] = {
#include "builtin_scenarios.inc"
};

absl::StatusOr<ScenarioTraining> TrainingFromJson(const Json& json) {
  ScenarioTraining training;
  JsonObject object(json, "training");
  object.Read("model", training.model)
      .Read("dataset", training.dataset)
      .Read("batch_size", training.batch_size)
      .Read("micro_batches", training.micro_batches)
      .Read("schedule", training.schedule)
      .Read("epochs", training.epochs)
      .Read("steps_per_epoch", training.steps_per_epoch)
      .Read("barrier_every", training.barrier_every);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return training;
}

absl::StatusOr<ScenarioHost> HostFromJson(const Json& json) {
  ScenarioHost host;
  JsonObject object(json, "host");
  object.Read("name", host.name)
      .Read("profile", host.profile)
      .Read("speed", host.speed)
      .Read("threads", host.threads)
      .Read("cpu_quota", host.cpu_quota)
      .Read("memory_limit_mb", host.memory_limit_mb);
  if (json.is_object() && json.contains("backend")) object.Read("backend", host.backend);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return host;
}

// What becomes of links while it trains: for the lab. A simulated network stays as it is.
absl::Status CheckChange(const Json& change) {
  if (!change.is_object() || !change.contains("seconds"))
    return absl::InvalidArgumentError("change: 'seconds' is missing");
  double seconds = 0;
  RUNNEL_RETURN_IF_ERROR(ReadValue(change["seconds"], "seconds", seconds));
  if (!(seconds >= 0)) return absl::InvalidArgumentError("change: seconds must be at least 0");
  Json link = change;
  link.erase("seconds");
  return ScenarioLinkFromJson(link).status();
}

absl::StatusOr<ScenarioMedium> MediumFromJson(const Json& json) {
  ScenarioMedium medium;
  double mbps = 0;
  JsonObject object(json, "medium");
  object.Read("name", medium.name)
      .Read("mbps", mbps)
      .Read("delay_ms", medium.delay_ms)
      .Read("access_point", medium.access_point);
  for (const Json& host : object.Array("hosts")) {
    RUNNEL_RETURN_IF_ERROR(ReadValue(host, "hosts", medium.hosts.emplace_back()));
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  medium.rate = LinkRate::Mbps(mbps);
  return medium;
}

absl::StatusOr<ScenarioMachine> MachineFromJson(const Json& json) {
  ScenarioMachine machine;
  JsonObject object(json, "machine");
  object.Read("name", machine.name).Read("processors", machine.processors);
  for (const Json& host : object.Array("hosts")) {
    RUNNEL_RETURN_IF_ERROR(ReadValue(host, "hosts", machine.hosts.emplace_back()));
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return machine;
}

absl::StatusOr<ScenarioProfile> ProfileFromJson(const Json& json) {
  ScenarioProfile profile;
  JsonObject object(json, "profile");
  object.Read("name", profile.name)
      .Read("about", profile.about)
      .Read("forward_share", profile.forward_share)
      .Read("input_gradient_share", profile.input_gradient_share)
      .Read("codec_gb_per_s", profile.codec_gb_per_s);
  const bool is_measured = json.is_object() && json.contains("device_profile");
  if (is_measured) object.Read("device_profile", profile.device_profile);
  if (!is_measured || json.contains("layer_ms"))
    object.Read("batch_size", profile.batch_size).Read("layer_ms", profile.layer_ms);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return profile;
}

absl::StatusOr<PublishedTimes> PublishedFromJson(const Json& json) {
  PublishedTimes published;
  JsonObject object(json, "published");
  object.Read("about", published.about)
      .Read("steps", published.steps)
      .Read("fit_mbps", published.fit_mbps)
      .Read("mbps", published.mbps);
  for (const Json& group : object.Array("same_speed")) {
    std::vector<std::string>& names = published.same_speed.emplace_back();
    if (!group.is_array()) {
      return absl::InvalidArgumentError("published: same_speed must be lists of host names");
    }
    for (const Json& name : group) {
      RUNNEL_RETURN_IF_ERROR(ReadValue(name, "same_speed", names.emplace_back()));
    }
  }
  if (const Json* minutes = object.Find("minutes")) {
    if (!minutes->is_object()) {
      return absl::InvalidArgumentError("published: minutes must be an object, method to times");
    }
    for (const auto& [method, times] : minutes->items()) {
      RUNNEL_RETURN_IF_ERROR(
          ReadValue(times, method, published.minutes.emplace_back(method, 0).second));
    }
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return published;
}

// One element after the other; `read` makes it out of JSON.
template <typename T>
absl::Status ReadAll(JsonObject& object, absl::string_view key,
                     absl::StatusOr<T> (*read)(const Json&), std::vector<T>& out) {
  for (const Json& element : object.Array(key)) {
    RUNNEL_ASSIGN_OR_RETURN(T value, read(element));
    out.push_back(std::move(value));
  }
  return absl::OkStatus();
}

// Device profiles that lie beside the scenario's file.
void ResolveProfiles(const std::filesystem::path& folder, Scenario& scenario) {
  for (ScenarioProfile& profile : scenario.profiles) {
    if (profile.device_profile.empty()) continue;
    std::error_code ignored;
    const std::filesystem::path beside =
        std::filesystem::absolute(folder / profile.device_profile, ignored);
    if (!ignored && std::filesystem::exists(beside, ignored))
      profile.device_profile = beside.string();
  }
}

}  // namespace

absl::StatusOr<Scenario> ScenarioFromJson(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  Scenario scenario;
  std::string duplex;
  JsonObject object(json, "scenario");
  object.Read("name", scenario.name).Read("about", scenario.about).Read("duplex", duplex);
  if (const Json* training = object.Find("training")) {
    RUNNEL_ASSIGN_OR_RETURN(scenario.training, TrainingFromJson(*training));
  }
  RUNNEL_RETURN_IF_ERROR(ReadAll(object, "hosts", HostFromJson, scenario.hosts));
  RUNNEL_RETURN_IF_ERROR(ReadAll(object, "links", ScenarioLinkFromJson, scenario.links));
  RUNNEL_RETURN_IF_ERROR(ReadAll(object, "profiles", ProfileFromJson, scenario.profiles));
  if (json.is_object() && json.contains("media")) {
    RUNNEL_RETURN_IF_ERROR(ReadAll(object, "media", MediumFromJson, scenario.media));
  }
  if (json.is_object() && json.contains("machines")) {
    RUNNEL_RETURN_IF_ERROR(ReadAll(object, "machines", MachineFromJson, scenario.machines));
  }
  if (json.is_object() && json.contains("changes")) {
    for (const Json& change : object.Array("changes")) RUNNEL_RETURN_IF_ERROR(CheckChange(change));
  }
  if (json.is_object() && json.contains("published")) {
    if (const Json* published = object.Find("published")) {
      RUNNEL_ASSIGN_OR_RETURN(scenario.published, PublishedFromJson(*published));
    }
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  if (duplex != "full" && duplex != "half") {
    return absl::InvalidArgumentError(
        absl::StrCat("scenario: duplex '", duplex, "' must be full or half"));
  }
  scenario.half_duplex = duplex == "half";
  RUNNEL_RETURN_IF_ERROR(CheckScenario(scenario));
  return scenario;
}

std::vector<std::string> ScenarioNames() {
  std::vector<std::string> names;
  for (const BuiltinScenario& scenario : kBuiltinScenarios) names.emplace_back(scenario.name);
  return names;
}

absl::StatusOr<Scenario> FindScenario(const std::string& name_or_path) {
  for (const BuiltinScenario& scenario : kBuiltinScenarios) {
    if (scenario.name == name_or_path) return ScenarioFromJson(scenario.json);
  }
  absl::StatusOr<Scenario> scenario = ReadScenario(name_or_path);
  if (!absl::IsNotFound(scenario.status())) return scenario;
  return absl::NotFoundError(absl::StrCat("scenario ", name_or_path, ": is no file and none of ",
                                          absl::StrJoin(ScenarioNames(), ", ")));
}

absl::StatusOr<Scenario> ReadScenario(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxFileBytes));
  absl::StatusOr<Scenario> scenario = ScenarioFromJson(text);
  if (scenario.ok()) {
    ResolveProfiles(std::filesystem::path(path).parent_path(), *scenario);
    return scenario;
  }
  return absl::Status(scenario.status().code(),
                      absl::StrCat(path, ": ", scenario.status().message()));
}

}  // namespace runnel
