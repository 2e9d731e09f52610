#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/cli/lab/lab_commands.h"
#include "central/cli/shipped_profiles.h"
#include "central/records/plan_json.h"
#include "central/reports/scenario_file.h"
#include "central/reports/simulate_table.h"
#include "compress/link_bits.h"
#include "partition/policy.h"
#include "predictor/run/predictor_row.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr char kSimulateExamples[] = R"(
Examples:
  a scenario of the lab on slower links
    runnel-lab simulate three-pis --mbps 1,4
  one of your own
    runnel-lab simulate mine.json
)";

struct Flags {
  std::vector<std::string> scenarios;
  SimulateOptions options{.codecs = DefaultCodecPairs(), .profiles = {ShippedProfiles()}};
  std::string summary;
  bool list_methods = false;
};

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const SimulatedMethod& method : NamedMethods()) names.push_back(method.name);
  return names;
}

// For scripts: every named method with the flags of `train` that it means.
std::string MethodsJson() {
  Json methods = Json::array();
  for (const SimulatedMethod& method : NamedMethods()) {
    methods.push_back(Json{
        {"name", method.name}, {"policy", method.policy}, {"train_flags", TrainFlags(method)}});
  }
  return DumpJson(methods);
}

// A scenario with what came out for it.
struct Outcome {
  Scenario scenario;
  std::vector<double> fitted_speeds;
  std::vector<ReproducedCell> reproduced;
  std::vector<SimulatedCell> cells;
};

bool IsPublished(const Scenario& scenario, const std::string& method) {
  for (const auto& [name, minutes] : scenario.published.minutes) {
    if (name == method) return true;
  }
  return false;
}

// Those of the lab whose hosts have device profiles, as a list for people.
std::string PredictableScenarios() {
  std::vector<std::string> names = ScenarioNames();
  std::erase_if(names, [](const std::string& name) {
    const absl::StatusOr<Scenario> scenario = FindScenario(name);
    return !scenario.ok() || !HaveDeviceProfiles(*scenario);
  });
  return absl::StrJoin(names, ", ");
}

// Whether the methods that the user named can plan on the scenario's hosts.
absl::Status CheckPredictable(const Scenario& scenario, const std::vector<std::string>& policies) {
  if (HaveDeviceProfiles(scenario)) return absl::OkStatus();
  for (const std::string& name : policies) {
    RUNNEL_ASSIGN_OR_RETURN(const PolicyRow* policy, FindPolicy(MethodsFor({name})[0].policy));
    if (policy->basis != PlanBasis::kPredicted) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--policies ", name, ": plans from predicted times, and the hosts of ", scenario.name,
        " have no device_profile to predict from; take measured_compression, or one of ",
        PredictableScenarios()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Outcome> SimulateScenario(Scenario scenario, const SimulateOptions& options) {
  Outcome outcome;
  outcome.scenario = std::move(scenario);
  RUNNEL_ASSIGN_OR_RETURN(ScenarioModel model, ScenarioModel::Create(outcome.scenario, options));
  const std::vector<SimulatedMethod> methods =
      MethodsFor(options.policies.empty() ? model.DefaultPolicies() : options.policies);
  if (outcome.scenario.published.steps > 0) {
    const std::vector<SimulatedMethod> published = PublishedMethods(outcome.scenario);
    RUNNEL_ASSIGN_OR_RETURN(outcome.fitted_speeds, FitSpeeds(model, published));
    model.SetSpeeds(outcome.fitted_speeds);
    RUNNEL_ASSIGN_OR_RETURN(outcome.reproduced, Reproduce(model, published));
  }
  for (double mbps : options.mbps.empty() ? std::vector<double>{0} : options.mbps) {
    for (const SimulatedMethod& method : methods) {
      RUNNEL_ASSIGN_OR_RETURN(SimulatedCell cell, model.Run(method, mbps));
      outcome.cells.push_back(std::move(cell));
    }
  }
  return outcome;
}

void PrintReproduced(const Outcome& outcome, const CommandContext& context) {
  const PublishedTimes& published = outcome.scenario.published;
  std::vector<std::string> speeds;
  for (size_t i = 0; i < outcome.fitted_speeds.size(); ++i) {
    speeds.push_back(
        absl::StrFormat("%s %.3f", outcome.scenario.hosts[i].name, outcome.fitted_speeds[i]));
  }
  context.print(absl::StrFormat("%s against %s; speeds fitted at %g Mbps: %s",
                                outcome.scenario.name, published.about, published.fit_mbps,
                                absl::StrJoin(speeds, ", ")));
  context.print(absl::StrFormat("%-12s %8s %12s %12s %8s", "method", "Mbps", "published",
                                "simulated", "error"));
  for (const ReproducedCell& cell : outcome.reproduced) {
    context.print(absl::StrFormat("%-12s %8g %8.1f min %8.1f min %+7.1f%%%s", cell.method,
                                  cell.mbps, cell.published_minutes, cell.simulated_minutes,
                                  cell.error() * 100, cell.fitted ? "  (fitted)" : ""));
  }
  context.print(absl::StrFormat("median error of %s alone: %.1f %%", outcome.scenario.name,
                                MedianError(outcome.reproduced) * 100));
}

// Seconds of `method` over those of the cell, at the cell's bandwidth; NaN without such a cell.
double SpeedupOver(const Outcome& outcome, const std::string& method, const SimulatedCell& cell) {
  for (const SimulatedCell& base : outcome.cells) {
    if (base.method == method && base.mbps == cell.mbps)
      return base.seconds_per_batch / cell.seconds_per_batch;
  }
  return std::nan("");
}

void PrintCells(const Outcome& outcome, bool show_ours, const CommandContext& context) {
  const bool gated = outcome.scenario.published.steps > 0 && !show_ours;
  context.print(absl::StrFormat("%s: %s", outcome.scenario.name, outcome.scenario.about));
  // A figure is worth what its layer times are worth.
  for (const ScenarioProfile& profile : outcome.scenario.profiles) {
    context.print(absl::StrFormat("layer times \"%s\": %s", profile.name, profile.about));
  }
  context.print(absl::StrFormat("%-20s %8s %11s %11s %9s %9s %8s %8s  %s", "method", "Mbps",
                                "s/batch", "samples/s", "speedup", "bound/t", "noise, %",
                                "stale, %", "plan"));
  for (const SimulatedCell& cell : outcome.cells) {
    if (gated && !IsPublished(outcome.scenario, cell.method)) continue;
    const double speedup = gated ? std::nan("") : SpeedupOver(outcome, "ftpipehd", cell);
    context.print(absl::StrFormat("%-20s %8s %11.4f %11.1f %9s %9.3f %8.2g %8.2g  %s", cell.method,
                                  cell.mbps > 0 ? absl::StrFormat("%g", cell.mbps) : "links",
                                  cell.seconds_per_batch, cell.samples_per_s,
                                  std::isnan(speedup) ? "-" : absl::StrFormat("%.2f", speedup),
                                  cell.efficiency, 100 * cell.noise, 100 * cell.staleness,
                                  PlanText(outcome.scenario, cell.plan)));
    if (cell.plans_in_turn > 1) {
      context.print(absl::StrFormat("%20s takes turns with %d other plans; times are their mean",
                                    "", cell.plans_in_turn - 1));
    }
  }
}

Json CellJson(const Outcome& outcome, const SimulatedCell& cell, bool show_ours) {
  const bool gated = outcome.scenario.published.steps > 0 && !show_ours;
  Json json{{"method", cell.method},
            {"mbps", cell.mbps},
            {"plan", PlanToJson(cell.plan)},
            {"plan_text", PlanText(outcome.scenario, cell.plan)},
            {"plans_in_turn", cell.plans_in_turn},
            {"seconds_per_batch", cell.seconds_per_batch},
            {"samples_per_s", cell.samples_per_s},
            {"efficiency", cell.efficiency},
            {"added_noise", cell.noise},
            {"added_noise_by_link", cell.noise_by_link},
            {"staleness", cell.staleness},
            {"busy_share", cell.busy_share},
            {"link_share", cell.link_share}};
  const double speedup = SpeedupOver(outcome, "ftpipehd", cell);
  if (!gated && !std::isnan(speedup)) json["speedup_vs_ftpipehd"] = speedup;
  return json;
}

Json OutcomeJson(const Outcome& outcome, bool show_ours) {
  const bool gated = outcome.scenario.published.steps > 0 && !show_ours;
  Json cells = Json::array();
  for (const SimulatedCell& cell : outcome.cells) {
    if (gated && !IsPublished(outcome.scenario, cell.method)) continue;
    cells.push_back(CellJson(outcome, cell, show_ours));
  }
  Json json{{"scenario", outcome.scenario.name}, {"cells", std::move(cells)}};
  if (outcome.scenario.published.steps == 0) return json;
  Json reproduced = Json::array();
  for (const ReproducedCell& cell : outcome.reproduced) {
    reproduced.push_back(Json{{"method", cell.method},
                              {"mbps", cell.mbps},
                              {"published_minutes", cell.published_minutes},
                              {"simulated_minutes", cell.simulated_minutes},
                              {"error", cell.error()},
                              {"fitted", cell.fitted}});
  }
  json["fitted_speeds"] = outcome.fitted_speeds;
  json["reproduced"] = std::move(reproduced);
  json["median_error"] = MedianError(outcome.reproduced);
  return json;
}

// median: NaN where nothing was published.
absl::Status WriteResults(Json results, bool show_ours, double median, const std::string& path) {
  Json json{{"results", std::move(results)}, {"shows_ratios", show_ours}};
  if (!std::isnan(median)) json["median_error"] = median;
  const std::string text = absl::StrCat(DumpJson(json), "\n");
  if (path == "-") return WriteAll(STDOUT_FILENO, text, "standard output");
  return WriteFileAtomically(path, {text});
}

// Those that the user named, which the methods that the user named can plan.
absl::StatusOr<std::vector<Scenario>> ReadScenarios(const Flags& flags) {
  if (flags.scenarios.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("simulate: give at least one scenario: a file, or one of ",
                     absl::StrJoin(ScenarioNames(), ", ")));
  }
  for (const SimulatedMethod& method : MethodsFor(flags.options.policies)) {
    const absl::Status status = FindPolicy(method.policy).status();
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--policies: method '", method.name, "' is not known; there are ",
          absl::StrJoin(MethodNames(), ", "), " and ", absl::StrJoin(PolicyNames(), ", ")));
    }
  }
  std::vector<Scenario> scenarios;
  for (const std::string& name : flags.scenarios) {
    RUNNEL_ASSIGN_OR_RETURN(scenarios.emplace_back(), FindScenario(name));
    RUNNEL_RETURN_IF_ERROR(CheckPredictable(scenarios.back(), flags.options.policies));
  }
  return scenarios;
}

absl::Status SimulateCommand(const Flags& flags, const CommandContext& context) {
  if (flags.list_methods) {
    context.print(MethodsJson());
    return absl::OkStatus();
  }
  RUNNEL_ASSIGN_OR_RETURN(std::vector<Scenario> scenarios, ReadScenarios(flags));
  if (!flags.summary.empty() && flags.summary != "-")
    RUNNEL_RETURN_IF_ERROR(CheckCanWrite(flags.summary));
  std::vector<Outcome> outcomes;
  std::vector<ReproducedCell> reproduced;
  for (Scenario& scenario : scenarios) {
    RUNNEL_ASSIGN_OR_RETURN(Outcome outcome, SimulateScenario(std::move(scenario), flags.options));
    reproduced.insert(reproduced.end(), outcome.reproduced.begin(), outcome.reproduced.end());
    outcomes.push_back(std::move(outcome));
  }
  const double median = MedianError(reproduced);
  const bool show_ours = std::isnan(median) || median <= kMostMedianError;
  for (const Outcome& outcome : outcomes) {
    if (outcome.scenario.published.steps > 0) PrintReproduced(outcome, context);
  }
  if (!std::isnan(median)) {
    context.print(absl::StrFormat(
        "median error of ftpipehd and accept (or measured_compression) outside the fitted column: "
        "%.1f %% (at most %.0f %%)",
        median * 100, kMostMedianError * 100));
  }
  Json results = Json::array();
  for (const Outcome& outcome : outcomes) {
    PrintCells(outcome, show_ours, context);
    results.push_back(OutcomeJson(outcome, show_ours));
  }
  if (!flags.summary.empty())
    RUNNEL_RETURN_IF_ERROR(WriteResults(std::move(results), show_ours, median, flags.summary));
  if (show_ours) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the published times are not reproduced well enough: no speed-ups and none of our policies "
      "are shown");
}

}  // namespace

Subcommand AddSimulate(const Command& program) {
  const Command app = program.AddCommand(
      "simulate", "Predict how fast policies would train on a scenario, without any device");
  const auto flags = std::make_shared<Flags>();
  app.Add("SCENARIO", flags->scenarios,
          absl::StrCat("scenario files, or names of the lab's: ",
                       absl::StrJoin(ScenarioNames(), ", ")));
  app.Add("--policies", flags->options.policies,
          absl::StrCat("methods (", absl::StrJoin(MethodNames(), ", "), ") and policies (",
                       absl::StrJoin(PolicyNames(), ", "),
                       "); with ftpipehd and accept also their ablations (default: ftpipehd, "
                       "runnel, and accept where the hosts can be predicted, else "
                       "measured_compression)"))
      .WithCommas();
  app.Add("--predictor-profiles", flags->options.profiles.folder,
          "folder with profiles of known devices and the networks trained on them (default: "
          "share/runnel/profiles)");
  app.Add("--predictor", flags->options.profiles.predictor, "predictor of policy accept")
      .OneOf(PredictorNames())
      .ShowDefault();
  app.Add("--mbps", flags->options.mbps,
          "bandwidths of every link, each way, e.g. 0.25,1,4 (default: the scenario's)")
      .WithCommas()
      .Between(1e-3, 1e6);
  app.Add("--codecs", flags->options.codecs,
          "codecs that runnel may choose, FORWARD/BACKWARD, the most exact first")
      .WithCommas()
      .ShowDefault();
  app.Add("--learning-budget", flags->options.learning_budget_percent,
          "most that the codecs of runnel may add to the gradients' noise, % of it")
      .NotNegative()
      .ShowDefault();
  app.Add("--max-cap", flags->options.max_cap, "largest cap that runnel may plan")
      .Between(int64_t{1}, int64_t{1024})
      .ShowDefault();
  app.Add("--summary", flags->summary, kSummaryHelp);
  app.AddSwitch("--list-methods", flags->list_methods,
                "print the methods with their flags of train, as JSON");
  app.Footer(absl::StrCat(kSimulateExamples, kScenarioFormat));
  return {app, [flags](const CommandContext& context) { return SimulateCommand(*flags, context); }};
}

}  // namespace runnel
