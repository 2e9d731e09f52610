#include "central/settings/run_settings.h"

#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/files/json_fields.h"
#include "central/settings/gradient_bits_setting.h"
#include "proto/base/recipe_family.h"
#include "proto/base/status_macros.h"
#include "proto/base/training.h"

namespace runnel {
namespace {

using Member =
    std::variant<std::string RunSettings::*, int64_t RunSettings::*, double RunSettings::*,
                 std::vector<int64_t> RunSettings::*, CodecSchedule RunSettings::*>;

// Nothing that is counted is larger: products of two of them fit 64 bits.
constexpr double kMaxCount = 1'000'000'000;
constexpr double kMaxWorkers = 1024;
constexpr double kAny = std::numeric_limits<double>::max();

// What a value may be: a number, or each element of a list, from min to max (below max if
// `below_max`); -1 too if that means "the model's default". A text with min 1 must not be empty.
struct Range {
  double min = 0;
  double max = kAny;
  bool may_be_default = false;
  bool below_max = false;
};
constexpr Range kText = {1};
constexpr Range kAnyText = {0};
constexpr Range kCount = {1, kMaxCount};
constexpr Range kCountOrDefault = {1, kMaxCount, true};
constexpr Range kCountOrNone = {0, kMaxCount};

struct Field {
  const char* key;
  Member member;
  Range range;
};

// Every field, in the order in which it is written. The key is the flag's name.
const Field kFields[] = {
    {"model", &RunSettings::model, kText},
    {"dataset", &RunSettings::dataset, kAnyText},
    {"data-dir", &RunSettings::data_dir, kAnyText},
    {"local-workers", &RunSettings::local_workers, {0, kMaxWorkers}},
    {"workers", &RunSettings::workers, {0, kMaxWorkers}},
    {"schedule", &RunSettings::schedule, kText},
    {"policy", &RunSettings::policy, kText},
    {"replan", &RunSettings::replan, kText},
    {"cost", &RunSettings::cost, kText},
    {"predictor-profiles", &RunSettings::predictor_profiles, kAnyText},
    {"codec-forward", &RunSettings::codec_forward, kText},
    {"codec-backward", &RunSettings::codec_backward, kText},
    {"bits", &RunSettings::bits, kAnyText},
    {"recipe", &RunSettings::recipe, kText},
    {"backend", &RunSettings::backend, kText},
    {"caps", &RunSettings::caps, kCount},
    {"epochs", &RunSettings::epochs, kCountOrDefault},
    {"max-batches", &RunSettings::max_batches, kCountOrNone},
    {"batch-size", &RunSettings::batch_size, kCountOrDefault},
    {"micro-batches", &RunSettings::micro_batches, kCountOrDefault},
    {"lr", &RunSettings::lr, {0, kAny, true}},
    {"momentum", &RunSettings::momentum, {0, 1, true, true}},
    {"weight-decay", &RunSettings::weight_decay, {0, kAny, true}},
    {"milestones", &RunSettings::milestones, kCount},
    {"milestone-factor", &RunSettings::milestone_factor, {0, kAny, true}},
    {"look-ahead", &RunSettings::look_ahead, {0, 1, true}},
    {"aggregate-every", &RunSettings::aggregate_every, kCountOrNone},
    {"stale-rate-steps", &RunSettings::stale_rate_steps, {0, kMaxCount, true}},
    {"gradient-bits", &RunSettings::gradient_bits, kAnyText},
    {"seed", &RunSettings::seed, {0}},
    {"barrier-every", &RunSettings::barrier_every, kCount},
    {"eval-every", &RunSettings::eval_every, {-1, kMaxCount}},
    {"eval-batch-size", &RunSettings::eval_batch_size, kCountOrDefault},
    {"link-mbps", &RunSettings::link_mbps, {0}},
    {"plan-mbps", &RunSettings::plan_mbps, {0}},
    {"link-delay-ms", &RunSettings::link_delay_ms, {0}},
    {"worker-threads", &RunSettings::worker_threads, {1, kMaxWorkers}},
    {"checkpoint-dir", &RunSettings::checkpoint_dir, kAnyText},
    {"journal", &RunSettings::journal, kAnyText},
    {"summary", &RunSettings::summary, kAnyText},
    {"listen", &RunSettings::listen, kText},
    {"metrics-port", &RunSettings::metrics_port, {0, 65535, true}},
    {"worker-timeout-s", &RunSettings::worker_timeout_s, kCount},
};

// A list that was not given is not written, so that "no milestones" and "the model's" differ.
bool IsWritten(const Field& field, const RunSettings& settings) {
  return field.member != Member(&RunSettings::milestones) || settings.has_milestones;
}

absl::Status Bad(const Field& field, absl::string_view value, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat("--", field.key, " ", value, ": must be ", rule));
}

absl::Status Check(const Field& field, double value, absl::string_view text) {
  const Range& range = field.range;
  if (range.may_be_default && value == -1) return absl::OkStatus();
  if (!std::isfinite(value)) return Bad(field, text, "a finite number");
  if (value < range.min) return Bad(field, text, absl::StrCat("at least ", range.min));
  if (range.below_max && value >= range.max) {
    return Bad(field, text, absl::StrCat("below ", range.max));
  }
  if (value > range.max) {
    return Bad(field, text, absl::StrCat("at most ", static_cast<int64_t>(range.max)));
  }
  return absl::OkStatus();
}

absl::Status CheckField(const Field& field, const std::string& value) {
  if (field.range.min >= 1 && value.empty()) return Bad(field, "''", "given");
  return absl::OkStatus();
}

// Read from text, which is its check; ResolveCodecs looks its codecs up.
absl::Status CheckField(const Field&, const CodecSchedule&) { return absl::OkStatus(); }

absl::Status CheckField(const Field& field, int64_t value) {
  return Check(field, static_cast<double>(value), absl::StrCat(value));
}

absl::Status CheckField(const Field& field, double value) {
  return Check(field, value, absl::StrCat(value));
}

absl::Status CheckField(const Field& field, const std::vector<int64_t>& values) {
  for (int64_t value : values) {
    RUNNEL_RETURN_IF_ERROR(Check(field, static_cast<double>(value), absl::StrJoin(values, ",")));
  }
  return absl::OkStatus();
}

absl::Status CheckGradientBitsFlag(const RunSettings& settings) {
  if (settings.gradient_bits.empty()) return absl::OkStatus();
  const absl::Status status = ParseGradientBitsSetting(settings.gradient_bits).status();
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gradient-bits ", settings.gradient_bits, ": ", status.message()));
  }
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--gradient-bits ", settings.gradient_bits,
                                                 ": recipe ", settings.recipe,
                                                 " steps by --lr; only integer recipes have them"));
}

absl::Status CheckStalenessFlags(const RunSettings& settings) {
  const bool looks_ahead = settings.look_ahead > 0;
  if (!looks_ahead && settings.aggregate_every == 0) return absl::OkStatus();
  if (looks_ahead && settings.aggregate_every != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--aggregate-every ", settings.aggregate_every,
                     ": --look-ahead keeps no weight versions to take the mean of; use one"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  if (!format.integer_parameters()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(looks_ahead ? "--look-ahead" : "--aggregate-every",
                                                 ": recipe ", settings.recipe,
                                                 " has integer weights; only fp32 can use it"));
}

absl::Status CheckCostFlags(const RunSettings& settings) {
  if (settings.cost != "measured" && settings.cost != "predicted") {
    return absl::InvalidArgumentError(
        absl::StrCat("--cost ", settings.cost, ": is neither measured nor predicted"));
  }
  if (settings.predictor_profiles.empty() || settings.cost == "predicted") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--predictor-profiles ", settings.predictor_profiles, ": only --cost predicted looks at it"));
}

absl::Status CheckTogether(const RunSettings& settings) {
  for (size_t i = 1; i < settings.caps.size(); ++i) {
    if (settings.caps[i] > settings.caps[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat("--caps ", absl::StrJoin(settings.caps, ","),
                                                     ": must not grow from stage to stage"));
    }
  }
  for (size_t i = 1; i < settings.milestones.size(); ++i) {
    if (settings.milestones[i] <= settings.milestones[i - 1]) {
      return absl::InvalidArgumentError(absl::StrCat("--milestones ",
                                                     absl::StrJoin(settings.milestones, ","),
                                                     ": must be in ascending order"));
    }
  }
  if (settings.local_workers == 0 && settings.workers > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers ", settings.workers,
                     ": needs --local-workers of at least 1, the first stage runs on this host"));
  }
  return absl::OkStatus();
}

template <typename T>
const T& ToJson(const T& value) {
  return value;
}

std::string ToJson(const CodecSchedule& codecs) { return codecs.text(); }

template <typename T>
void SetDefault(T& value, const T& fallback) {
  if (value == T{-1}) value = fallback;
}

}  // namespace

absl::StatusOr<NumberFormat> FormatOf(const RunSettings& settings) {
  const absl::StatusOr<RecipeName> name = ParseRecipeName(settings.recipe);
  if (name.ok()) return name->family->format;
  return absl::InvalidArgumentError(absl::StrCat("--recipe: ", name.status().message()));
}

std::string IgnoredSettings(const RunSettings& settings, const NumberFormat& format) {
  if (!format.integer_parameters()) return "";
  std::vector<std::string> ignored;
  const auto note = [&ignored](bool given, absl::string_view flag) {
    if (given) ignored.emplace_back(flag);
  };
  note(settings.lr != -1, "--lr");
  note(settings.momentum != -1, "--momentum");
  note(settings.stale_rate_steps > 0, "--stale-rate-steps");
  note(settings.weight_decay != -1, "--weight-decay");
  note(settings.has_milestones, "--milestones");
  note(settings.milestone_factor != -1, "--milestone-factor");
  if (ignored.empty()) return "";
  return absl::StrCat("recipe ", settings.recipe, " does not look at ",
                      absl::StrJoin(ignored, ", "), ": its step is --gradient-bits");
}

RunSettings WithDefaults(RunSettings settings, const ModelSpec& model,
                         absl::string_view default_dataset, int64_t schedule_micro_batches,
                         const NumberFormat& format) {
  const TrainingDefaults& defaults = model.defaults;
  if (settings.dataset.empty()) settings.dataset = std::string(default_dataset);
  SetDefault(settings.epochs, defaults.epochs);
  SetDefault(settings.batch_size, defaults.batch_size);
  SetDefault(settings.eval_batch_size, settings.batch_size);
  SetDefault(settings.micro_batches, schedule_micro_batches);
  SetDefault(settings.lr, defaults.learning_rate);
  SetDefault(settings.momentum, defaults.momentum);
  SetDefault(settings.weight_decay, defaults.weight_decay);
  SetDefault(settings.milestone_factor, defaults.milestone_factor);
  if (!settings.has_milestones) settings.milestones = defaults.milestones;
  settings.has_milestones = true;
  if (!format.integer_parameters()) return settings;
  if (settings.gradient_bits.empty()) {
    settings.gradient_bits = GradientBitsText(DefaultGradientBits(settings.epochs));
  }
  return settings;
}

absl::Status CheckSettings(const RunSettings& settings) {
  for (const Field& field : kFields) {
    RUNNEL_RETURN_IF_ERROR(
        std::visit([&](auto member) { return CheckField(field, settings.*member); }, field.member));
  }
  RUNNEL_RETURN_IF_ERROR(CheckGradientBitsFlag(settings));
  RUNNEL_RETURN_IF_ERROR(CheckStalenessFlags(settings));
  RUNNEL_RETURN_IF_ERROR(CheckCostFlags(settings));
  return CheckTogether(settings);
}

std::string SettingsToJson(const RunSettings& settings) {
  Json json = Json::object();
  for (const Field& field : kFields) {
    if (!IsWritten(field, settings)) continue;
    std::visit([&](auto member) { json[field.key] = ToJson(settings.*member); }, field.member);
  }
  return DumpJson(json);
}

absl::StatusOr<RunSettings> SettingsFromJson(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (!json.is_object()) return absl::InvalidArgumentError("settings: needs a JSON object");
  RunSettings settings;
  JsonObject object(json, "settings");
  for (const Field& field : kFields) {
    if (!json.contains(field.key)) continue;
    std::visit([&](auto member) { object.Read(field.key, settings.*member); }, field.member);
  }
  settings.has_milestones = json.contains("milestones");
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return settings;
}

}  // namespace runnel
