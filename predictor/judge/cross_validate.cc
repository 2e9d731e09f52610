#include "predictor/judge/cross_validate.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "predictor/fit/baselines.h"
#include "predictor/fit/known_device.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Seconds = std::vector<double>;

std::optional<size_t> IndexOf(const DeviceTask& task, const LayerRange& range) {
  const auto found = std::find(task.ranges.begin(), task.ranges.end(), range);
  if (found == task.ranges.end()) return std::nullopt;
  return static_cast<size_t>(found - task.ranges.begin());
}

bool IsSingle(const LayerRange& range) { return range.first_layer == range.last_layer; }

// The representatives and the fold's first `samples` adaptation samples, each once.
std::vector<size_t> MeasuredRanges(const DeviceTask& task,
                                   const std::vector<size_t>& representatives, int fold,
                                   int64_t samples) {
  std::set<size_t> known(representatives.begin(), representatives.end());
  for (const size_t i : task.Samples(fold, static_cast<size_t>(samples))) known.insert(i);
  return {known.begin(), known.end()};
}

std::vector<Observation> ObservationsOf(const DeviceTask& task, const std::vector<size_t>& which) {
  std::vector<Observation> observations;
  for (const size_t i : which) observations.push_back({task.ranges[i], task.seconds[i]});
  return observations;
}

Seconds PredictFlops(const DeviceTask& task, int fold, int64_t samples) {
  std::vector<double> macs, seconds;
  for (const size_t i : MeasuredRanges(task, task.probes, fold, samples)) {
    macs.push_back(task.work->Macs(task.ranges[i]));
    seconds.push_back(task.seconds[i]);
  }
  const FlopsLine line = FitFlopsLine(macs, seconds);
  Seconds result;
  for (const LayerRange& range : task.ranges)
    result.push_back(line.Seconds(task.work->Macs(range)));
  return result;
}

// Empty if a layer was not measured by itself.
Seconds PredictLut(const DeviceTask& task) {
  std::vector<double> layers;
  for (int l = 0; l < task.work->layers(); ++l) {
    const std::optional<size_t> single = IndexOf(task, {l, l});
    if (!single.has_value()) return {};
    layers.push_back(task.seconds[*single]);
  }
  Seconds result;
  for (const LayerRange& range : task.ranges) result.push_back(SumOfLayers(layers, range));
  return result;
}

// Empty without a central, or if it did not measure a range of the task.
Seconds PredictRatio(const DeviceTask& task, const DeviceTask* central, int fold, int64_t samples) {
  if (central == nullptr) return {};
  Seconds own, theirs;
  for (const size_t i : task.Samples(fold, static_cast<size_t>(samples))) {
    const std::optional<size_t> there = IndexOf(*central, task.ranges[i]);
    if (!there.has_value()) continue;
    own.push_back(task.seconds[i]);
    theirs.push_back(central->seconds[*there]);
  }
  const double ratio = CapacityRatio(own, theirs);
  Seconds result;
  for (const LayerRange& range : task.ranges) {
    const std::optional<size_t> there = IndexOf(*central, range);
    if (!there.has_value()) return {};
    result.push_back(ratio * central->seconds[*there]);
  }
  return result;
}

const TaskPrediction* Find(absl::Span<const TaskPrediction> networks, const std::string& method,
                           const DeviceTask& task, int64_t samples) {
  for (const TaskPrediction& one : networks) {
    if (one.method == method && one.samples == samples && one.IsOf(task)) return &one;
  }
  return nullptr;
}

// Counts the errors of each method on one task.
class TaskJudge {
 public:
  TaskJudge(const DeviceTask& task, Accuracy& accuracy) : task_(task), accuracy_(accuracy) {
    for (size_t i = 0; i < task.ranges.size(); ++i) {
      if (task.fold[i] != DeviceTask::kNotJudged) judged_.push_back(i);
    }
  }

  void Add(const std::string& method, int64_t samples, const Seconds& seconds,
           bool singles = true) {
    if (seconds.empty()) return;
    ErrorShares shares;
    for (const size_t i : judged_) {
      if (singles || !IsSingle(task_.ranges[i])) shares.Add(seconds[i], task_.seconds[i]);
    }
    accuracy_.all[method][samples].Add(shares);
    accuracy_.by_configuration[task_.configuration][method][samples].Add(shares);
  }

  void AddNoise() {
    ErrorShares shares;
    for (const size_t i : judged_) {
      if (task_.second_seconds[i] > 0) shares.Add(task_.second_seconds[i], task_.seconds[i]);
    }
    accuracy_.noise_floor.Add(shares);
    accuracy_.noise_by_configuration[task_.configuration].Add(shares);
  }

 private:
  const DeviceTask& task_;
  Accuracy& accuracy_;
  std::vector<size_t> judged_;
};

}  // namespace

absl::StatusOr<std::vector<KnownDevice>> DevicesOf(absl::Span<const DeviceTask> tasks) {
  std::vector<KnownDevice> devices;
  for (const DeviceTask& task : tasks) {
    RUNNEL_ASSIGN_OR_RETURN(
        KnownDevice device,
        KnownDevice::Create(*task.work, task.batch, task.BothPasses(), task.central));
    devices.push_back(std::move(device));
  }
  return devices;
}

PredictorKnowledge KnowledgeFor(const DeviceTask& task, absl::Span<const DeviceTask> others,
                                absl::Span<const KnownDevice> devices,
                                const std::function<bool(const DeviceTask& other)>& may_know) {
  std::vector<KnownDevice> known;
  for (size_t i = 0; i < others.size(); ++i) {
    if (others[i].model == task.model && may_know(others[i])) known.push_back(devices[i]);
  }
  return PredictorKnowledge{task.model, *task.work, task.batch,
                            std::make_shared<const std::vector<KnownDevice>>(std::move(known)),
                            task.Ten()};
}

absl::StatusOr<TaskPrediction> PredictWithRow(const PredictorRow& row,
                                              const PredictorKnowledge& knowledge,
                                              const DeviceTask& task, int64_t samples) {
  std::vector<Observation> measured;
  for (const LayerRange& range : row.ranges(knowledge)) {
    const std::optional<size_t> at = IndexOf(task, range);
    if (at.has_value()) measured.push_back({range, task.seconds[*at]});
  }
  const auto predict = [&](int fold) -> absl::StatusOr<Seconds> {
    const std::vector<Observation> later =
        ObservationsOf(task, task.Samples(fold, static_cast<size_t>(samples)));
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<const RangePredictor> predictor,
                            row.fit(knowledge, measured, later));
    Seconds result(task.ranges.size(), 0);
    for (size_t i = 0; i < result.size(); ++i) {
      if (task.fold[i] == fold) result[i] = predictor->Seconds(task.ranges[i]);
    }
    return result;
  };
  RUNNEL_ASSIGN_OR_RETURN(Seconds seconds, PredictByFold(task, predict));
  return TaskPrediction{std::string(row.name), task.configuration, task.model, task.batch, samples,
                        std::move(seconds)};
}

void ErrorShares::Add(double predicted, double measured) {
  const double error = std::abs(predicted / measured - 1);
  ++count;
  within_5 += error <= 0.05 ? 1 : 0;
  within_10 += error <= 0.10 ? 1 : 0;
}

void ErrorShares::Add(const ErrorShares& other) {
  count += other.count;
  within_5 += other.within_5;
  within_10 += other.within_10;
}

const DeviceTask* CentralOf(absl::Span<const DeviceTask> tasks, const DeviceTask& task) {
  const DeviceTask* best = nullptr;
  for (const DeviceTask& other : tasks) {
    if (!other.central || other.model != task.model || other.recipe != task.recipe ||
        other.configuration == task.configuration)
      continue;
    if (best == nullptr || std::abs(other.batch - task.batch) < std::abs(best->batch - task.batch))
      best = &other;
  }
  return best;
}

namespace {

// Judges every method on one task. `others`: the tasks among which CentralOf looks.
absl::Status JudgeTask(const DeviceTask& task, absl::Span<const DeviceTask> others,
                       const PredictorKnowledge& knowledge,
                       absl::Span<const TaskPrediction> networks,
                       absl::Span<const int64_t> sample_counts, Accuracy& accuracy) {
  TaskJudge judge(task, accuracy);
  judge.AddNoise();
  RUNNEL_ASSIGN_OR_RETURN(const PredictorRow* mixture, FindPredictor("mixture"));
  const Seconds lut = PredictLut(task);
  const DeviceTask* central = CentralOf(others, task);
  for (const int64_t samples : sample_counts) {
    RUNNEL_ASSIGN_OR_RETURN(const TaskPrediction mixed,
                            PredictWithRow(*mixture, knowledge, task, samples));
    judge.Add("mixture", samples, mixed.seconds);
    RUNNEL_ASSIGN_OR_RETURN(const Seconds flops, PredictByFold(task, [&](int fold) {
                              return PredictFlops(task, fold, samples);
                            }));
    judge.Add("flops", samples, flops);
    judge.Add("lut", samples, lut, /*singles=*/false);
    RUNNEL_ASSIGN_OR_RETURN(const Seconds ratio, PredictByFold(task, [&](int fold) {
                              return PredictRatio(task, central, fold, samples);
                            }));
    judge.Add("ratio", samples, ratio);
    for (const PredictorRow& row : BuiltinPredictors()) {
      const std::string name(row.name);
      if (const TaskPrediction* one = Find(networks, name, task, samples))
        judge.Add(name, samples, one->seconds);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Accuracy> JudgePredictors(absl::Span<const DeviceTask> tasks,
                                         absl::Span<const int64_t> sample_counts,
                                         absl::Span<const TaskPrediction> networks,
                                         LeaveOut leave_out) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<KnownDevice> devices, DevicesOf(tasks));
  Accuracy accuracy;
  for (const DeviceTask& task : tasks) {
    const auto may_know = [&](const DeviceTask& other) {
      return LeftOutName(leave_out, other) != LeftOutName(leave_out, task);
    };
    const PredictorKnowledge knowledge = KnowledgeFor(task, tasks, devices, may_know);
    RUNNEL_RETURN_IF_ERROR(JudgeTask(task, tasks, knowledge, networks, sample_counts, accuracy));
  }
  return accuracy;
}

absl::StatusOr<Accuracy> JudgeUnseen(absl::Span<const DeviceTask> known,
                                     absl::Span<const DeviceTask> unseen,
                                     absl::Span<const int64_t> sample_counts,
                                     absl::Span<const TaskPrediction> networks) {
  for (const DeviceTask& task : unseen) {
    for (const DeviceTask& other : known) {
      if (other.configuration != task.configuration) continue;
      return absl::InvalidArgumentError(absl::StrCat("configuration ", task.configuration,
                                                     " is among those that are known already"));
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<KnownDevice> devices, DevicesOf(known));
  Accuracy accuracy;
  for (const DeviceTask& task : unseen) {
    const PredictorKnowledge knowledge =
        KnowledgeFor(task, known, devices, [](const DeviceTask&) { return true; });
    RUNNEL_RETURN_IF_ERROR(JudgeTask(task, known, knowledge, networks, sample_counts, accuracy));
  }
  return accuracy;
}

absl::StatusOr<std::vector<LayerError>> RatioLayerErrors(const DeviceTask& task,
                                                         const DeviceTask& central,
                                                         const LayerRange& measured) {
  const std::optional<size_t> own = IndexOf(task, measured);
  const std::optional<size_t> theirs = IndexOf(central, measured);
  if (!own.has_value() || !theirs.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "layers ", measured.first_layer, " to ", measured.last_layer, " of ", task.model,
        " were not measured on both ", task.configuration, " and ", central.configuration));
  }
  const double ratio = CapacityRatio({task.seconds[*own]}, {central.seconds[*theirs]});
  std::vector<LayerError> errors;
  for (int l = 0; l < task.work->layers(); ++l) {
    const std::optional<size_t> layer = IndexOf(task, {l, l});
    const std::optional<size_t> there = IndexOf(central, {l, l});
    if (!layer.has_value() || !there.has_value())
      return absl::FailedPreconditionError(absl::StrCat("layer ", l, " was not measured"));
    errors.push_back({l, ratio * central.seconds[*there], task.seconds[*layer]});
  }
  return errors;
}

}  // namespace runnel
