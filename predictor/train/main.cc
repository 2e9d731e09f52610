// runnel-predictor: trains the latency predictor's networks with LibTorch, which central does not
// link (AccEPT 3.2).

#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/profile_folder.h"
#include "predictor/profiles/sub_models.h"
#include "predictor/run/predictor_row.h"
#include "predictor/train/cross_validate_torch.h"
#include "predictor/train/train_networks.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

struct Arguments {
  std::string profiles;
  std::string out;
  std::string row = "all";
  std::string leave_out = "family";
  int64_t max_macs = kMaxProfiledMacs;
  std::vector<int64_t> samples = {0, 2, 4, 8, 14};
};

absl::StatusOr<std::vector<DeviceTask>> LoadTasks(const std::string& folder, int64_t max_macs) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceProfile> profiles, LoadProfiles(folder));
  return TasksOf(profiles, max_macs, MakeModel);
}

bool All(const DeviceTask&) { return true; }

// `network` into the folder, under the name that central looks for.
absl::Status Write(const std::string& folder, const PredictorNetwork& network) {
  RUNNEL_ASSIGN_OR_RETURN(const PredictorRow* row, FindPredictor(network.row));
  const std::string path = absl::StrCat(folder, "/", row->network_file(network.model));
  RUNNEL_RETURN_IF_ERROR(WriteText(path, FormatNetwork(network)));
  std::printf("%s\n", path.c_str());
  return absl::OkStatus();
}

absl::Status Train(const Arguments& a) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<DeviceTask> tasks, LoadTasks(a.profiles, a.max_macs));
  RUNNEL_ASSIGN_OR_RETURN(const TrainingSet set, TrainingSet::Create(std::move(tasks)));
  const std::string& folder = a.out.empty() ? a.profiles : a.out;
  std::set<std::string> models;
  for (const DeviceTask& task : set.tasks) models.insert(task.model);
  if (a.row != "accept") {
    RUNNEL_ASSIGN_OR_RETURN(const PredictorNetwork network, TrainMlpRow(set, All));
    RUNNEL_RETURN_IF_ERROR(Write(folder, network));
  }
  for (const std::string& model : models) {
    if (a.row == "mlp") break;
    RUNNEL_ASSIGN_OR_RETURN(const PredictorNetwork network, TrainAcceptRow(set, model, All));
    RUNNEL_RETURN_IF_ERROR(Write(folder, network));
  }
  return absl::OkStatus();
}

absl::Status CrossValidateAll(const Arguments& a) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<DeviceTask> tasks, LoadTasks(a.profiles, a.max_macs));
  const LeaveOut leave_out = a.leave_out == "family" ? LeaveOut::kFamily : LeaveOut::kConfiguration;
  RUNNEL_ASSIGN_OR_RETURN(
      const std::vector<TaskPrediction> predictions,
      CrossValidate(std::move(tasks), a.samples, leave_out,
                    [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }));
  return WriteText(a.out, FormatPredictions(predictions));
}

void AddProfiles(CLI::App& app, Arguments& a) {
  app.add_option("--profiles", a.profiles, "folder with *.profile files")->required();
  app.add_option("--max-macs", a.max_macs, "limit of a range, as the profiles were measured")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
}

int Finish(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "runnel-predictor: %s\n", std::string(status.message()).c_str());
  return absl::IsInternal(status) ? 1 : 2;
}

int Run(int argc, char** argv) {
  Arguments a;
  CLI::App app{"Trains Runnel's latency predictor from profiles of devices."};
  app.require_subcommand(1);
  CLI::App* train =
      app.add_subcommand("train", "Train the networks that central evaluates (--predictor)");
  AddProfiles(*train, a);
  train->add_option("--out", a.out, "folder for the networks (default: that of the profiles)");
  train->add_option("--row", a.row, "which of the predictors to train")
      ->check(CLI::IsMember({"all", "mlp", "accept"}))
      ->capture_default_str();
  CLI::App* cross =
      app.add_subcommand("crossval", "Predict devices by networks that never saw them");
  AddProfiles(*cross, a);
  cross->add_option("--out", a.out, "file for the predictions")->required();
  cross->add_option("--samples", a.samples, "adaptation samples of a task")
      ->delimiter(',')
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  cross->add_option("--leave-out", a.leave_out, "what a network may not see: family, configuration")
      ->check(CLI::IsMember({"family", "configuration"}))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (train->parsed()) return Finish(Train(a));
  return Finish(CrossValidateAll(a));
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::Run(argc, argv); }
