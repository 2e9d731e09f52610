#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/cli/lab/lab_commands.h"
#include "central/planning/predicted_cost.h"
#include "central/reports/predicted_plans.h"
#include "central/reports/scenario_file.h"
#include "central/run/workers/worker_process.h"
#include "partition/zoo/zoo.h"
#include "predictor/judge/cross_validate.h"
#include "predictor/profiles/profile_folder.h"
#include "predictor/profiles/sub_models.h"
#include "predictor/run/predictor_row.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

struct ReportArguments {
  std::string profiles;
  std::string summary;
  std::string predictions;
  std::string figure_4;
  std::string figure_7;
  std::string device;
  std::string model = "mobilenet_v2";
  std::string leave_out = "family";
  std::vector<std::string> unseen;
  std::vector<std::string> plans;
  std::vector<int64_t> samples = {0, 2, 4, 8, 14};
  int64_t max_macs = kMaxProfiledMacs;
};

constexpr int64_t kTrainingMs = int64_t{60} * 60 * 1000;  // minutes, but for a busy machine

// Next to this program; central itself does not link LibTorch.
absl::StatusOr<std::string> PredictorBinary() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = (self.parent_path() / "runnel-predictor").string();
  if (!error && access(path.c_str(), X_OK) == 0) return path;
  return absl::NotFoundError(absl::StrCat(
      path, ": is not there (a build without LibTorch has none); the rows of networks need it"));
}

// Trains the networks of the cross-validation in a process of their own.
absl::StatusOr<std::vector<TaskPrediction>> TrainNetworks(const ReportArguments& a,
                                                          const std::string& binary) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / absl::StrCat("runnel-predictor-", getpid());
  std::filesystem::create_directories(folder);
  const std::string out = (folder / "predictions").string();
  WorkerCommand command;
  command.binary = binary;
  command.arguments = {"crossval", "--profiles", a.profiles,   "--leave-out",           a.leave_out,
                       "--out",    out,          "--max-macs", absl::StrCat(a.max_macs)};
  for (const int64_t count : a.samples)
    command.arguments.insert(command.arguments.end(), {"--samples", absl::StrCat(count)});
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerProcess> process,
                          WorkerProcess::Start(command));
  const std::optional<ProcessExit> exit = process->Wait(kTrainingMs);
  absl::StatusOr<std::string> text =
      exit.has_value() && exit->ok()
          ? ReadText(out, kMaxPredictionBytes)
          : absl::InternalError(absl::StrCat(
                binary, ": ", exit.has_value() ? exit->ToString() : "took over an hour"));
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  RUNNEL_RETURN_IF_ERROR(text.status());
  return ParsePredictions(*text);
}

absl::StatusOr<std::vector<TaskPrediction>> Networks(const ReportArguments& a,
                                                     const CommandContext& context) {
  if (!a.predictions.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadText(a.predictions, kMaxPredictionBytes));
    return ParsePredictions(text);
  }
  const absl::StatusOr<std::string> binary = PredictorBinary();
  if (!binary.ok()) {
    context.logger->Log(Severity::kWarning, std::string(binary.status().message()));
    return std::vector<TaskPrediction>();
  }
  return TrainNetworks(a, *binary);
}

Json ToJson(const std::map<int64_t, ErrorShares>& by_samples) {
  Json within_5 = Json::object(), within_10 = Json::object();
  int64_t count = 0;
  for (const auto& [samples, shares] : by_samples) {
    within_5[absl::StrCat(samples)] = shares.within_5pct();
    within_10[absl::StrCat(samples)] = shares.within_10pct();
    count = shares.count;
  }
  return Json{{"within_5pct", within_5}, {"within_10pct", within_10}, {"sub_models", count}};
}

Json ToJson(const ErrorShares& shares) {
  return Json{{"within_5pct", shares.within_5pct()},
              {"within_10pct", shares.within_10pct()},
              {"sub_models", shares.count}};
}

Json ToJson(const Accuracy& accuracy) {
  Json json;
  for (const auto& [method, by_samples] : accuracy.all) json[method] = ToJson(by_samples);
  json["noise_floor"] = ToJson(accuracy.noise_floor);
  json["configurations"] = accuracy.by_configuration.size();
  return json;
}

Json ToJson(const std::vector<PredictedPlan>& plans) {
  Json json = Json::object();
  for (const PredictedPlan& plan : plans) {
    Json& row = json[plan.row];
    row["median_ratio"] = MedianRatio(plans, plan.row);
    row["worst_ratio"] = WorstRatio(plans, plan.row);
    row["plans"].push_back(Json{{"scenario", plan.scenario},
                                {"rotation", plan.rotation},
                                {"predicted_s", plan.predicted_s},
                                {"measured_s", plan.measured_s}});
  }
  return json;
}

absl::Status WriteJson(const Accuracy& accuracy, const std::optional<Accuracy>& unseen,
                       const std::vector<PredictedPlan>& plans, const std::string& path) {
  Json json = ToJson(accuracy);
  if (!plans.empty()) json["plans"] = ToJson(plans);
  if (unseen.has_value()) json["unseen"] = ToJson(*unseen);
  const std::string text = json.dump(2) + "\n";
  if (path == "-") return WriteAll(STDOUT_FILENO, text, "standard output");
  return WriteFileAtomically(path, {absl::string_view(text)});
}

void Print(const Accuracy& accuracy, const ReportArguments& a, const CommandContext& context) {
  std::string head = "within 5 / 10 %   samples:";
  for (const int64_t samples : a.samples) absl::StrAppendFormat(&head, "%14d", samples);
  context.print(head);
  for (const auto& [method, by_samples] : accuracy.all) {
    std::string line = absl::StrFormat("%-26s", method);
    for (const int64_t samples : a.samples) {
      const auto found = by_samples.find(samples);
      if (found == by_samples.end()) {
        absl::StrAppendFormat(&line, "%14s", "-");
      } else {
        absl::StrAppendFormat(&line, "%7.1f /%5.1f", found->second.within_5pct() * 100,
                              found->second.within_10pct() * 100);
      }
    }
    context.print(line);
  }
  context.print(absl::StrFormat("%-26s%7.1f /%5.1f   (second pass against first, %d sub-models)",
                                "noise floor", accuracy.noise_floor.within_5pct() * 100,
                                accuracy.noise_floor.within_10pct() * 100,
                                accuracy.noise_floor.count));
}

// AccEPT's figure 7: accuracy by configuration, with h alone and with eight samples.
absl::Status WriteFigure7(const Accuracy& accuracy, const std::string& path) {
  std::string csv = "configuration,method,samples,within_5pct,within_10pct,sub_models\n";
  const auto row = [&csv](const std::string& configuration, const std::string& method,
                          int64_t samples, const ErrorShares& shares) {
    absl::StrAppendFormat(&csv, "%s,%s,%d,%.4f,%.4f,%d\n", configuration, method, samples,
                          shares.within_5pct(), shares.within_10pct(), shares.count);
  };
  for (const auto& [configuration, methods] : accuracy.by_configuration) {
    for (const auto& [method, by_samples] : methods) {
      for (const auto& [samples, shares] : by_samples) row(configuration, method, samples, shares);
    }
    const auto noise = accuracy.noise_by_configuration.find(configuration);
    if (noise != accuracy.noise_by_configuration.end())
      row(configuration, "noise_floor", 0, noise->second);
  }
  return WriteFileAtomically(path, {absl::string_view(csv)});
}

// AccEPT's figure 4: the layers of one model on one device as FTPipeHD estimates them from the
// middle third of the layers, which the device ran.
absl::Status WriteFigure4(const std::vector<DeviceTask>& tasks, const ReportArguments& a) {
  for (const DeviceTask& task : tasks) {
    if (task.model != a.model || (!a.device.empty() && task.configuration != a.device)) continue;
    const DeviceTask* central = CentralOf(tasks, task);
    if (central == nullptr || (a.device.empty() && task.central)) continue;
    // The measured range nearest to the paper's, layers 9 to 15 of 20.
    const int layers = task.work->layers();
    LayerRange best = task.ranges[0];
    const auto distance = [&](const LayerRange& range) {
      return std::abs(range.first_layer - layers * 9 / 20) +
             std::abs(range.last_layer - layers * 15 / 20);
    };
    for (const LayerRange& range : task.ranges) {
      if (range.first_layer != range.last_layer && distance(range) < distance(best)) best = range;
    }
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerError> errors,
                            RatioLayerErrors(task, *central, best));
    std::string csv = absl::StrFormat(
        "# %s on %s, central %s, ratio from layers %d to %d\n"
        "layer,estimated_ms,measured_ms,error_percent\n",
        task.model, task.configuration, central->configuration, best.first_layer, best.last_layer);
    for (const LayerError& error : errors) {
      absl::StrAppendFormat(&csv, "%d,%.4f,%.4f,%.2f\n", error.layer, error.estimated_seconds * 1e3,
                            error.measured_seconds * 1e3,
                            (error.estimated_seconds / error.measured_seconds - 1) * 100);
    }
    return WriteFileAtomically(a.figure_4, {absl::string_view(csv)});
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--device ", a.device, ", --figure4-model ", a.model, ": no profile has both"));
}

// By the networks that lie beside the profiles and learned from all of them; a row without one is
// left out.
absl::StatusOr<std::vector<TaskPrediction>> PredictUnseen(const std::vector<DeviceTask>& known,
                                                          const std::vector<DeviceTask>& unseen,
                                                          const ReportArguments& a) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<KnownDevice> devices, DevicesOf(known));
  std::vector<TaskPrediction> predictions;
  for (const DeviceTask& task : unseen) {
    PredictorKnowledge knowledge =
        KnowledgeFor(task, known, devices, [](const DeviceTask&) { return true; });
    for (const PredictorRow& row : BuiltinPredictors()) {
      if (!UsesNetwork(row, knowledge)) continue;
      absl::StatusOr<PredictorNetwork> network = LoadNetwork(row, task.model, a.profiles);
      if (!network.ok()) continue;
      knowledge.network = *std::move(network);
      for (const int64_t samples : a.samples) {
        RUNNEL_ASSIGN_OR_RETURN(TaskPrediction one, PredictWithRow(row, knowledge, task, samples));
        predictions.push_back(std::move(one));
      }
    }
  }
  return predictions;
}

absl::StatusOr<std::vector<DeviceTask>> UnseenTasks(const ReportArguments& a) {
  std::vector<DeviceProfile> profiles;
  for (const std::string& path : a.unseen) {
    absl::StatusOr<std::string> text = ReadText(path, kMaxProfileBytes);
    if (!text.ok())
      return absl::InvalidArgumentError(absl::StrCat("--unseen ", text.status().message()));
    absl::StatusOr<DeviceProfile> profile = ParseProfile(*text);
    if (!profile.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--unseen ", path, ": ", profile.status().message()));
    }
    profiles.push_back(*std::move(profile));
  }
  return TasksOf(profiles, a.max_macs, MakeModel);
}

// The files of --unseen, predicted from all profiles.
absl::StatusOr<Accuracy> ReportUnseen(const std::vector<DeviceTask>& known,
                                      const std::vector<DeviceTask>& tasks,
                                      const ReportArguments& a) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<TaskPrediction> networks,
                          PredictUnseen(known, tasks, a));
  absl::StatusOr<Accuracy> accuracy = JudgeUnseen(known, tasks, a.samples, networks);
  if (accuracy.ok() || !absl::IsInvalidArgument(accuracy.status())) return accuracy;
  return absl::InvalidArgumentError(absl::StrCat("--unseen: ", accuracy.status().message()));
}

// Plans from what is predicted of the unseen devices (--plans).
absl::StatusOr<std::vector<PredictedPlan>> ReportPlans(const std::vector<DeviceTask>& known,
                                                       const std::vector<DeviceTask>& unseen,
                                                       const ReportArguments& a,
                                                       const CommandContext& context) {
  std::vector<Scenario> scenarios;
  for (const std::string& name : a.plans) {
    RUNNEL_ASSIGN_OR_RETURN(Scenario scenario, FindScenario(name));
    scenarios.push_back(std::move(scenario));
  }
  const auto find_network = [&](const PredictorRow& row,
                                const std::string& model) -> std::optional<PredictorNetwork> {
    absl::StatusOr<PredictorNetwork> network = LoadNetwork(row, model, a.profiles);
    if (!network.ok()) return std::nullopt;
    return *std::move(network);
  };
  RUNNEL_ASSIGN_OR_RETURN(std::vector<PredictedPlan> plans,
                          JudgePlans(scenarios, known, unseen, find_network, a.profiles));
  context.print("");
  context.print("a batch of a plan from predicted times over one from measured times");
  context.print("predictor      median   worst   plans");
  for (const std::string& row : PredictorNames()) {
    const auto count = std::count_if(plans.begin(), plans.end(),
                                     [&](const PredictedPlan& plan) { return plan.row == row; });
    if (count == 0) continue;
    context.print(absl::StrFormat("%-12s%9.3f%8.3f%8d", row, MedianRatio(plans, row),
                                  WorstRatio(plans, row), count));
  }
  return plans;
}

// Before anything that takes minutes.
absl::Status CheckFiles(const ReportArguments& a) {
  for (const std::string& path : {a.summary, a.figure_4, a.figure_7}) {
    if (!path.empty() && path != "-") RUNNEL_RETURN_IF_ERROR(CheckCanWrite(path));
  }
  return absl::OkStatus();
}

absl::Status Report(const ReportArguments& a, const CommandContext& context) {
  RUNNEL_RETURN_IF_ERROR(CheckFiles(a));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceProfile> profiles, LoadProfiles(a.profiles));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceTask> tasks,
                          TasksOf(profiles, a.max_macs, MakeModel));
  if (!a.figure_4.empty()) RUNNEL_RETURN_IF_ERROR(WriteFigure4(tasks, a));
  // Before the networks are trained: that takes minutes.
  std::optional<Accuracy> unseen;
  std::vector<DeviceTask> unseen_tasks;
  if (!a.unseen.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(unseen_tasks, UnseenTasks(a));
    RUNNEL_ASSIGN_OR_RETURN(unseen, ReportUnseen(tasks, unseen_tasks, a));
  }
  if (!a.plans.empty() && a.unseen.empty()) {
    return absl::InvalidArgumentError(
        "--plans: needs --unseen, the devices that stand for a scenario's hosts");
  }
  const bool families = a.leave_out == "family";
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<TaskPrediction> networks, Networks(a, context));
  RUNNEL_ASSIGN_OR_RETURN(const Accuracy accuracy,
                          JudgePredictors(tasks, a.samples, networks,
                                          families ? LeaveOut::kFamily : LeaveOut::kConfiguration));
  Print(accuracy, a, context);
  if (unseen.has_value()) {
    context.print("");
    context.print(absl::StrCat("never profiled: ", absl::StrJoin(a.unseen, ", ")));
    Print(*unseen, a, context);
  }
  std::vector<PredictedPlan> plans;
  if (!a.plans.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(plans, ReportPlans(tasks, unseen_tasks, a, context));
  }
  if (!a.figure_7.empty()) RUNNEL_RETURN_IF_ERROR(WriteFigure7(accuracy, a.figure_7));
  return a.summary.empty() ? absl::OkStatus() : WriteJson(accuracy, unseen, plans, a.summary);
}

}  // namespace

Subcommand AddPredictorReport(const Command& program) {
  const Command app = program.AddCommand(
      "predictor-report", "Accuracy of predicted times of sub-models on unseen devices");
  const auto a = std::make_shared<ReportArguments>();
  app.Add("--profiles", a->profiles, "folder with *.profile files").Required();
  app.Add("--summary", a->summary, kSummaryHelp);
  app.Add("--samples", a->samples, "adaptation samples of the device")
      .WithCommas()
      .Between(0, 1000)
      .ShowDefault();
  app.Add("--max-macs", a->max_macs, "limit of a range, as the profiles were measured")
      .Positive()
      .ShowDefault();
  app.Add("--leave-out", a->leave_out,
          "left out of the predictor's knowledge: the device's family, or its configuration "
          "alone")
      .OneOf({"family", "configuration"})
      .ShowDefault();
  app.Add("--unseen", a->unseen,
          "profiles of configurations that are not in --profiles; predicted from all profiles "
          "there and by the networks beside them")
      .WithCommas();
  app.Add("--plans", a->plans,
          "scenarios (`simulate` lists them): slow-down of plans from predicted times of the "
          "--unseen devices against plans from measured times")
      .WithCommas();
  app.Add("--predictions", a->predictions,
          "what `runnel-predictor crossval` wrote (default: it is started)");
  app.Add("--figure4", a->figure_4, "CSV: errors of FTPipeHD's ratio by layer");
  app.Add("--device", a->device, "configuration of --figure4 (default: the first)");
  app.Add("--figure4-model", a->model, "model of --figure4").ShowDefault();
  app.Add("--figure7", a->figure_7, "CSV: accuracy by configuration");
  app.Footer(R"(
Examples:
  how well each predictor knows devices that it has not seen
    runnel-lab predictor-report --profiles predictor/profiles --summary -)");
  return {app, [a](const CommandContext& context) { return Report(*a, context); }};
}

}  // namespace runnel
