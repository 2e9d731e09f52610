#include "central/cli/subcommands/run_flags.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/cli/shipped_profiles.h"
#include "central/cli/subcommands/help.h"
#include "central/cli/subcommands/subcommand.h"
#include "central/data/dataset.h"
#include "central/settings/codec_settings.h"
#include "central/settings/milestone_shares.h"
#include "central/settings/run_fields.h"
#include "compress/codec.h"
#include "partition/policy.h"
#include "partition/schedule.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "predictor/run/predictor_row.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/optimizer.h"
#include "proto/base/training/rates/rate.h"
#include "proto/base/training/recipe_family.h"
#include "proto/process/command_line_error.h"

namespace runnel {
namespace {

struct GroupTitle {
  SettingGroup group;
  const char* title;
};
constexpr GroupTitle kGroups[] = {
    {SettingGroup::kData, "Model and data"},
    {SettingGroup::kMembers, "Devices"},
    {SettingGroup::kLinks, "Links"},
    {SettingGroup::kPlanning, "Planning"},
    {SettingGroup::kTraining, "Training"},
    {SettingGroup::kStaleness, "Against staleness (async schedules)"},
    {SettingGroup::kIntegers, "Integer recipes"},
    {SettingGroup::kOutput, "Output"},
    {SettingGroup::kAdvanced, "Advanced"},
};

// Default of --policy.
constexpr char kProductPolicy[] = "runnel";

// What --help shows; --help-all shows every flag.
constexpr absl::string_view kEveryday[] = {
    "model",    "dataset",        "data-dir", "recipe",        "local-workers",
    "workers",  "listen",         "bits",     "codec-forward", "codec-backward",
    "schedule", "policy",         "epochs",   "batch-size",    "lr",
    "seed",     "checkpoint-dir", "journal",  "summary",       "metrics-port"};

// The zoo's, and a file of the user's own.
std::vector<std::string> ModelTexts() {
  std::vector<std::string> texts = ModelNames();
  for (const absl::string_view prefix : {kJsonPrefix, kOnnxPrefix})
    texts.push_back(absl::StrCat(prefix, "FILE"));
  return texts;
}

std::vector<std::string> ReplanValues() { return {"on", "off", "auto"}; }

// Another name of a flag, for people who bring their own.
constexpr std::pair<absl::string_view, absl::string_view> kOtherNames[] = {{"dataset", "data"}};

std::string OptionNames(absl::string_view flag) {
  std::string names = absl::StrCat("--", flag);
  for (const auto& [name, other] : kOtherNames) {
    if (name == flag) absl::StrAppend(&names, ",--", other);
  }
  return names;
}

// Flags whose value is one of the names in a table.
struct NamedValue {
  absl::string_view flag;
  std::vector<std::string> (*names)();
};
constexpr NamedValue kNamedValues[] = {
    {"model", ModelTexts},   {"dataset", DatasetNames}, {"schedule", ScheduleNames},
    {"policy", PolicyNames}, {"replan", ReplanValues},  {"predictor", PredictorNames},
};

const NamedValue* FindNamedValue(absl::string_view flag) {
  for (const NamedValue& row : kNamedValues) {
    if (row.flag == flag) return &row;
  }
  return nullptr;
}

// "mbq:2..8, stochastic:4|8, ...".
std::string CodecFamilyTexts() {
  return absl::StrJoin(CodecFamilies(), ", ", [](std::string* out, const CodecFamily& family) {
    absl::StrAppend(out, family.text());
  });
}

// The names of the policies for which the fact holds.
std::string PoliciesThat(bool (*fact)(const PolicyRow& row)) {
  std::vector<absl::string_view> names;
  for (const PolicyRow& row : BuiltinPolicies()) {
    if (fact(row)) names.push_back(row.name);
  }
  return absl::StrJoin(names, ", ");
}

// "mlp (a network that ...), ...".
std::string PredictorTexts() {
  return absl::StrJoin(BuiltinPredictors(), ", ", [](std::string* out, const PredictorRow& row) {
    absl::StrAppend(out, row.name, " (", row.help, ")");
  });
}

// "freeze:LAYERS (layers whose ...), ...".
std::string RewriteTexts() {
  return absl::StrJoin(Rewrites(), ", ", [](std::string* out, const RewriteRow& row) {
    absl::StrAppend(out, row.name, ":", row.arguments, " (", row.summary, ")");
  });
}

// Text on a flag's values, from the tables of the programs.
std::string ValuesText(absl::string_view flag) {
  if (flag == "codec-forward") return absl::StrCat("; codecs: ", CodecFamilyTexts());
  if (flag == "rewrite") return absl::StrCat(": ", RewriteTexts());
  if (flag == "recipe") return absl::StrCat(": ", RecipeHelp());
  if (flag == "backend-option") return absl::StrCat(" ", BackendOptionsHelp());
  if (flag == "optimizer") return absl::StrCat(": ", OptimizerHelp());
  if (flag == "rate") return absl::StrCat(": ", RateHelp());
  if (flag == "replan")
    return absl::StrCat("; of the policies ",
                        PoliciesThat([](const PolicyRow& row) { return row.replans; }), " do");
  if (flag == "predictor") return absl::StrCat(": ", PredictorTexts());
  const NamedValue* named = FindNamedValue(flag);
  if (named == nullptr) return "";
  std::string text = absl::StrCat(": ", absl::StrJoin(named->names(), ", "));
  if (flag == "policy") {
    absl::StrAppend(&text, "; these measure devices first: ",
                    PoliciesThat([](const PolicyRow& row) { return row.needs_profile(); }));
  }
  return text;
}

std::string HelpText(const RunField& field, const RunSettings& defaults) {
  std::string text = absl::StrCat(field.flag.help, ValuesText(field.flag.name));
  const bool is_number = ValueName(field) == "N" || ValueName(field) == "NUMBER";
  if (!is_number && FindNamedValue(field.flag.name) == nullptr) {
    absl::StrAppend(&text, "; e.g. ", field.flag.example);
  }
  std::string otherwise(field.flag.fallback);
  if (otherwise.empty()) otherwise = SettingText(field, defaults);
  return absl::StrCat(text, " (default: ", otherwise.empty() ? "none" : otherwise, ")");
}

const RunField* FindField(absl::string_view name) {
  for (const RunField& field : RunFields()) {
    if (field.flag.name == name) return &field;
  }
  return nullptr;
}

// --workers MIN..MAX.
absl::Status SetWorkers(const std::string& least, const std::string& most, RunFlags& flags) {
  RUNNEL_RETURN_IF_ERROR(SetFromText(*FindField("workers"), most, flags.settings));
  RUNNEL_RETURN_IF_ERROR(SetFromText(*FindField("at-least"), least, flags.settings));
  flags.given.emplace("at-least");
  if (flags.settings.at_least <= flags.settings.workers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--workers ", least, "..", most, ": give MIN..MAX, the smaller number first, as 2..5"));
}

// "; a file is csv:iris.csv" for "iris.csv" where "csv:FILE" is one of the names; else empty.
std::string FileHint(const std::string& text, const std::vector<std::string>& names) {
  for (const absl::string_view name : names) {
    const size_t colon = name.find(':');
    if (colon == name.npos || !absl::EndsWith(text, absl::StrCat(".", name.substr(0, colon))))
      continue;
    return absl::StrCat("; a file is ", name.substr(0, colon + 1), text);
  }
  return "";
}

absl::Status SetFlag(const RunField& field, const std::string& text, RunFlags& flags) {
  flags.given.emplace(field.flag.name);
  if (field.flag.name == "milestones") {
    flags.milestone_shares = AreShares(text) ? text : "";
    if (AreShares(text)) return absl::OkStatus();  // FinishRunFlags reads them, beside --rate
  }
  if (const size_t dots = text.find(".."); field.flag.name == "workers" && dots != text.npos)
    return SetWorkers(text.substr(0, dots), text.substr(dots + 2), flags);
  if (const NamedValue* named = FindNamedValue(field.flag.name)) {
    const std::vector<std::string> names = named->names();
    // Of "csv:FILE" the table says what stands before the colon.
    const auto is_named = [&text](absl::string_view name) {
      const size_t colon = name.find(':');
      return colon == name.npos ? text == name : absl::StartsWith(text, name.substr(0, colon + 1));
    };
    if (std::none_of(names.begin(), names.end(), is_named)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", field.flag.name, " ", text, ": is none of ",
                       absl::StrJoin(names, ", "), FileHint(text, names), DidYouMean(text, names)));
    }
  }
  return SetFromText(field, text, flags.settings);
}

void AddFlag(CLI::App& app, const RunField& field, const char* group, RunFlags& flags) {
  const std::string name = OptionNames(field.flag.name);
  const std::string help = HelpText(field, flags.settings);
  CLI::Option* option = nullptr;
  if (const absl::string_view separator = ListSeparator(field); !separator.empty()) {
    option = app.add_option_function<std::vector<std::string>>(
        name,
        [&field, &flags, separator](const std::vector<std::string>& words) {
          flags.status.Update(SetFlag(field, absl::StrJoin(words, separator), flags));
        },
        help);
  } else {
    option = app.add_option_function<std::string>(
        name,
        [&field, &flags](const std::string& text) {
          flags.status.Update(SetFlag(field, text, flags));
        },
        help);
  }
  option->type_name(std::string(ValueName(field)))->group(group);
  if (std::find(std::begin(kEveryday), std::end(kEveryday), field.flag.name) ==
      std::end(kEveryday)) {
    flags.seldom.push_back({option, group});
  }
}

// Leaves the flags that few people need to --help-all.
void AddHelpAll(CLI::App& app, RunFlags& flags) {
  for (const auto& [option, group] : flags.seldom) option->group("");
  app.add_flag_callback(
         "--help-all",
         [&flags] {
           for (const auto& [option, group] : flags.seldom) option->group(group);
           throw CLI::CallForHelp();
         },
         absl::StrCat("Print this and the other ", flags.seldom.size(), " flags, and exit"))
      ->group("Options");
}

// A line of the file of --config.
absl::Status SetFromFile(CLI::App& command, const CLI::ConfigItem& item, RunFlags& flags) {
  CLI::Option* option = command.get_option_no_throw(absl::StrCat("--", item.name));
  if (option == nullptr || !item.parents.empty() || item.name == "config") {
    const std::string successor = SuccessorOf(absl::StrCat("--", item.name), command);
    if (!successor.empty()) return absl::InvalidArgumentError(successor);
    return absl::InvalidArgumentError(
        absl::StrCat("'", item.fullname(), "' is no flag of ", command.get_name(),
                     DidYouMean(absl::StrCat("--", item.name), FlagNames(command))));
  }
  if (option->count() > 0) return absl::OkStatus();
  if (const RunField* field = FindField(item.name)) {
    return SetFlag(*field, absl::StrJoin(item.inputs, ","), flags);
  }
  option->add_result(item.inputs);
  option->run_callback();
  return absl::OkStatus();
}

// CLI11 would read a file for the program itself only, not for one of its commands.
absl::Status ReadConfig(CLI::App& command, RunFlags& flags) {
  const CLI::Option* config = command.get_option_no_throw("--config");
  if (config == nullptr || config->count() == 0) return absl::OkStatus();
  const auto path = config->as<std::string>();
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return absl::InvalidArgumentError(absl::StrCat("--config ", path, ": is a folder, no file"));
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("--config ", path, ": cannot be read"));
  absl::Status status;
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigBase().from_config(file)) {
      status.Update(SetFromFile(command, item, flags));
    }
  } catch (const CLI::Error& error) {
    status.Update(absl::InvalidArgumentError(error.what()));
  }
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("--config ", path, ": ", status.message()));
}

absl::Status FillMilestoneShares(RunFlags& flags) {
  if (flags.milestone_shares.empty()) return absl::OkStatus();
  const auto wrong = [&flags](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--milestones ", flags.milestone_shares, ": ", what));
  };
  std::string& rate = flags.settings.training.rate;
  if (!rate.empty() && rate != TrainingSettings().rate)
    return wrong(absl::StrCat("--rate ", rate, " does not look at milestones; leave one out"));
  absl::StatusOr<std::string> shares = RateOfShares(flags.milestone_shares);
  if (!shares.ok()) return wrong(shares.status().message());
  rate = *std::move(shares);
  return absl::OkStatus();
}

// What a policy's plans are made from, where the policy leaves no choice.
absl::Status FillPredictor(RunFlags& flags) {
  RunSettings& settings = flags.settings;
  const absl::StatusOr<const PolicyRow*> policy = FindPolicy(settings.policy);
  if (!policy.ok()) return absl::OkStatus();  // said when the run is set up
  const PlanBasis basis = (*policy)->basis;
  if (settings.predictor.empty()) {
    settings.predictor = std::string((*policy)->predictor);
    return absl::OkStatus();
  }
  const auto wrong = [&settings](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--predictor ", settings.predictor, ": policy ", settings.policy, what));
  };
  if (basis == PlanBasis::kMeasured)
    return wrong(" plans from measured layers; take --policy accept");
  if (basis == PlanBasis::kFirstDevice)
    return wrong(" estimates by ratios that it measures; take --policy ftpipehd+");
  return absl::OkStatus();
}

void FillProductDefaults(RunFlags& flags) {
  RunSettings& settings = flags.settings;
  const auto is_given = [&flags](const char* name) { return flags.given.count(name) > 0; };
  if (!settings.predictor.empty() && !is_given("predictor-profiles"))
    settings.predictor_profiles = ShippedProfiles();
  const bool has_links =
      settings.local_workers > 0 && settings.local_workers + settings.workers > 1;
  if (flags.quick || !has_links) return;
  if (!is_given("policy")) settings.policy = kProductPolicy;
  const bool has_codecs =
      is_given("bits") || is_given("codec-forward") || is_given("codec-backward");
  const absl::StatusOr<const PolicyRow*> policy = FindPolicy(settings.policy);
  if (policy.ok() && !has_codecs) settings.bits = std::string((*policy)->bits);
}

void AddQuickFlag(CLI::App& app, const char* group, RunFlags& flags) {
  app.add_flag("--quick", flags.quick,
               "measure nothing: an even cut (policy uniform) and uncompressed links, unless other "
               "flags are given")
      ->group(group);
}

}  // namespace

void AddRunFlags(const Command& command, const std::vector<std::string>& names, RunFlags& flags) {
  CLI::App& app = command.app();
  for (const GroupTitle& group : kGroups) {
    for (const RunField& field : RunFields()) {
      if (field.flag.group != group.group) continue;
      if (std::find(names.begin(), names.end(), field.flag.name) == names.end()) continue;
      AddFlag(app, field, group.title, flags);
    }
    if (group.group == SettingGroup::kPlanning) AddQuickFlag(app, group.title, flags);
  }
}

void AddRunFlags(const Command& command, RunFlags& flags) {
  CLI::App& app = command.app();
  app.add_option("--config",
                 "file with flags, one 'name=value' a line; the command line has precedence")
      ->type_name("FILE");
  for (const GroupTitle& group : kGroups) {
    if (group.group == SettingGroup::kPlanning) AddQuickFlag(app, group.title, flags);
    for (const RunField& field : RunFields()) {
      if (field.flag.group == group.group) AddFlag(app, field, group.title, flags);
    }
  }
  AddHelpAll(app, flags);
}

absl::StatusOr<RunSettings> FinishRunFlags(const Command& command, RunFlags& flags) {
  if (!flags.status.ok()) return flags.status;
  if (absl::Status status = ReadConfig(command.app(), flags); !status.ok()) return status;
  RUNNEL_RETURN_IF_ERROR(FillMilestoneShares(flags));
  RUNNEL_RETURN_IF_ERROR(FillPredictor(flags));
  FillProductDefaults(flags);
  return flags.settings;
}

absl::Status ListenWhereWorkersWait(const RunFlags& flags, const CommandContext& context,
                                    RunSettings& settings) {
  if (settings.workers == 0 || flags.given.count("listen") > 0) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const std::string waiting, context.waiting_at());
  if (!waiting.empty()) settings.listen = waiting;
  return absl::OkStatus();
}

}  // namespace runnel
