#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/run/commands/commands.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

// "runs/mnist.csv" is "runs/mnist.seed-3.csv"; a folder has one of its own in it.
std::string FileOf(const std::string& path, uint64_t seed) {
  if (path.empty() || path == "-") return "";
  const std::filesystem::path whole(path);
  return (whole.parent_path() /
          absl::StrCat(whole.stem().string(), ".seed-", seed, whole.extension().string()))
      .string();
}
std::string FolderOf(const std::string& path, uint64_t seed) {
  if (path.empty()) return "";
  return (std::filesystem::path(path) / absl::StrCat("seed-", seed)).string();
}

RunSettings SettingsOf(RunSettings settings, uint64_t seed) {
  settings.training.seed = seed;
  for (std::string* file : {&settings.summary, &settings.log, &settings.journal, &settings.report})
    *file = FileOf(*file, seed);
  for (std::string* folder : {&settings.checkpoint_dir, &settings.tensorboard})
    *folder = FolderOf(*folder, seed);
  return settings;
}

// Of the runs that have such a figure.
struct Spread {
  double mean = 0;
  double deviation = 0;  // of the sample: over n - 1; 0 of one run
  double lowest = 0;
  double highest = 0;
};

Spread SpreadOf(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  Spread spread;
  for (const double value : values) spread.mean += value / n;
  for (const double value : values)
    spread.deviation += (value - spread.mean) * (value - spread.mean);
  spread.deviation = values.size() > 1 ? std::sqrt(spread.deviation / (n - 1)) : 0;
  spread.lowest = *std::min_element(values.begin(), values.end());
  spread.highest = *std::max_element(values.begin(), values.end());
  return spread;
}

Json ToJson(const Spread& spread) {
  return {{"mean", spread.mean},
          {"deviation", spread.deviation},
          {"lowest", spread.lowest},
          {"highest", spread.highest}};
}

}  // namespace

absl::Status TrainSeedsCommand(const RunSettings& settings, const std::vector<uint64_t>& seeds,
                               const CommandContext& context) {
  if (!settings.summary.empty() && settings.summary != "-")
    RUNNEL_RETURN_IF_ERROR(CheckCanWrite(settings.summary));
  Json runs = Json::array();
  std::vector<double> accuracies, losses, speeds;
  for (size_t i = 0; i < seeds.size(); ++i) {
    context.print(absl::StrCat("seed ", seeds[i], ", run ", i + 1, " of ", seeds.size()));
    RunSummary summary;
    RUNNEL_RETURN_IF_ERROR(TrainCommand(SettingsOf(settings, seeds[i]), context, &summary));
    Json run = {{"seed", seeds[i]},
                {"samples_per_s", summary.samples_per_s},
                {"wall_s", summary.wall_s},
                {"weights_sha256", summary.weights_sha256}};
    speeds.push_back(summary.samples_per_s);
    if (!summary.evaluations.empty()) {
      // With --validation-share the figures of the test set, which nothing was chosen by.
      const double accuracy = summary.test.has_value() ? summary.test->accuracy : summary.accuracy;
      const double loss = summary.test.has_value() ? summary.test->loss : summary.loss;
      run["accuracy"] = accuracy;
      run["loss"] = loss;
      accuracies.push_back(accuracy);
      losses.push_back(loss);
    }
    runs.push_back(run);
  }
  Json json = {{"runs", runs}, {"samples_per_s", ToJson(SpreadOf(speeds))}};
  if (!accuracies.empty()) {
    const Spread accuracy = SpreadOf(accuracies);
    json["accuracy"] = ToJson(accuracy);
    json["loss"] = ToJson(SpreadOf(losses));
    context.print(
        absl::StrFormat("accuracy over %d seeds (%s): mean %.2f %%, deviation %.2f, %.2f to %.2f",
                        accuracies.size(), absl::StrJoin(seeds, ", "), accuracy.mean * 100,
                        accuracy.deviation * 100, accuracy.lowest * 100, accuracy.highest * 100));
  }
  if (settings.summary.empty()) return absl::OkStatus();
  const std::string text = absl::StrCat(DumpJson(json), "\n");
  if (settings.summary == "-") return WriteAll(STDOUT_FILENO, text, "standard output");
  return WriteFileAtomically(settings.summary, {text});
}

}  // namespace runnel
