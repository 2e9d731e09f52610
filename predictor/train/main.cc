// runnel-predictor: trains the latency predictor's networks with LibTorch, which central does not
// link (AccEPT 3.2).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/profile_folder.h"
#include "predictor/profiles/sub_models.h"
#include "predictor/train/cross_validate_torch.h"
#include "predictor/train/train_torch.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

struct Arguments {
  std::string profiles;
  std::string out;
  std::string weights;
  std::string profile;
  int64_t max_macs = kMaxProfiledMacs;
  std::vector<int64_t> samples = {0, 2, 4, 8, 14};
};

absl::StatusOr<std::vector<DeviceTask>> LoadTasks(const std::string& folder, int64_t max_macs) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceProfile> profiles, LoadProfiles(folder));
  return TasksOf(profiles, max_macs, MakeModel);
}

std::vector<MlpSample> AllSamples(const std::vector<DeviceTask>& tasks) {
  std::vector<MlpSample> samples;
  for (const DeviceTask& task : tasks) {
    for (MlpSample& sample : SamplesOf(task, MlpEncoding::kWork))
      samples.push_back(std::move(sample));
  }
  return samples;
}

absl::Status Train(const Arguments& a) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceTask> tasks, LoadTasks(a.profiles, a.max_macs));
  const std::vector<MlpSample> samples = AllSamples(tasks);
  RUNNEL_ASSIGN_OR_RETURN(const Mlp mlp, TrainMlp(samples, WorkTraining()));
  RUNNEL_RETURN_IF_ERROR(WriteText(a.out, FormatMlp(mlp)));
  std::printf("%s: trained on %zu samples of %zu models on devices\n", a.out.c_str(),
              samples.size(), tasks.size());
  return absl::OkStatus();
}

absl::Status CrossValidateAll(const Arguments& a) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceTask> tasks, LoadTasks(a.profiles, a.max_macs));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<TaskPrediction> predictions,
                          CrossValidate(tasks, a.samples, [](const std::string& line) {
                            std::fprintf(stderr, "%s\n", line.c_str());
                          }));
  return WriteText(a.out, FormatPredictions(predictions));
}

// Continual learning: the device's own samples, with the earlier training data in rehearsal.
absl::Status Adapt(const Arguments& a) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadText(a.weights, kMaxMlpBytes));
  RUNNEL_ASSIGN_OR_RETURN(const Mlp mlp, ParseMlp(text));
  RUNNEL_ASSIGN_OR_RETURN(const std::string own, ReadText(a.profile, kMaxProfileBytes));
  RUNNEL_ASSIGN_OR_RETURN(const DeviceProfile profile, ParseProfile(own));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceTask> fresh,
                          TasksOf({profile}, a.max_macs, MakeModel));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<DeviceTask> known, LoadTasks(a.profiles, a.max_macs));
  RUNNEL_ASSIGN_OR_RETURN(const Mlp adapted,
                          AdaptMlp(mlp, AllSamples(fresh), AllSamples(known), MlpAdaptation{}));
  return WriteText(a.out, FormatMlp(adapted));
}

void AddProfiles(CLI::App& app, Arguments& a) {
  app.add_option("--profiles", a.profiles, "folder with *.profile files")->required();
  app.add_option("--max-macs", a.max_macs, "limit of a range, as the profiles were measured")
      ->check(CLI::PositiveNumber)
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
  CLI::App* train = app.add_subcommand("train", "Train the network that central evaluates");
  AddProfiles(*train, a);
  train->add_option("--out", a.out, "file for the weights")->required();
  CLI::App* cross =
      app.add_subcommand("crossval", "Predict each family by networks that never saw it");
  AddProfiles(*cross, a);
  cross->add_option("--out", a.out, "file for the predictions")->required();
  cross->add_option("--samples", a.samples, "adaptation samples of a task")
      ->delimiter(',')
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  CLI::App* adapt = app.add_subcommand("adapt", "Go on learning with a new device's profile");
  AddProfiles(*adapt, a);
  adapt->add_option("--weights", a.weights, "weights to go on from")->required();
  adapt->add_option("--profile", a.profile, "what was measured on the device")->required();
  adapt->add_option("--out", a.out, "file for the new weights")->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (train->parsed()) return Finish(Train(a));
  if (cross->parsed()) return Finish(CrossValidateAll(a));
  return Finish(Adapt(a));
}

}  // namespace
}  // namespace runnel

int main(int argc, char** argv) { return runnel::Run(argc, argv); }
