#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "predictor/fit/baselines.h"
#include "predictor/fit/informative_ranges.h"
#include "predictor/fit/layer_prior.h"
#include "predictor/profiles/sub_models.h"
#include "predictor/run/accept_row.h"
#include "predictor/run/mlp_row.h"
#include "predictor/run/predictor_row.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Fitted = absl::StatusOr<std::unique_ptr<const RangePredictor>>;
using Observations = absl::Span<const Observation>;

std::vector<Observation> Both(Observations measured, Observations samples) {
  std::vector<Observation> all(measured.begin(), measured.end());
  all.insert(all.end(), samples.begin(), samples.end());
  return all;
}

// A fit that has a Seconds of its own.
template <typename Fit>
class PredictorOf final : public RangePredictor {
 public:
  explicit PredictorOf(Fit fit) : fit_(std::move(fit)) {}
  double Seconds(const LayerRange& range) const override { return fit_.Seconds(range); }

 private:
  Fit fit_;
};
template <typename Fit>
std::unique_ptr<const RangePredictor> Predictor(Fit fit) {
  return std::make_unique<const PredictorOf<Fit>>(std::move(fit));
}

// Fits a model that no known device has: layers by the FLOPs line, corrected by the measurements.
Fitted FitColdStart(const PredictorKnowledge& knowledge, Observations measured,
                    Observations samples) {
  if (measured.empty()) return absl::InvalidArgumentError("cold start: nothing was measured");
  RUNNEL_ASSIGN_OR_RETURN(LayerTimes times,
                          FitLayerTimes(knowledge.work, ColdStartPrior(knowledge.work, measured),
                                        Both(measured, samples), kMeasurementNoise));
  return Predictor(std::move(times));
}

Fitted FitMixture(const PredictorKnowledge& knowledge, Observations measured,
                  Observations samples) {
  if (knowledge.known->empty()) return FitColdStart(knowledge, measured, samples);
  RUNNEL_ASSIGN_OR_RETURN(
      DeviceMixture mixture,
      DeviceMixture::Fit(knowledge.known, Both(measured, samples), knowledge.batch));
  return Predictor(std::move(mixture));
}

Fitted FitMlpOrColdStart(const PredictorKnowledge& knowledge, Observations measured,
                         Observations samples) {
  if (knowledge.known->empty()) return FitColdStart(knowledge, measured, samples);
  return FitMlp(knowledge, measured, samples);
}

// The sum of the layers, each measured by itself. Samples give one factor for all.
struct LookUpTable {
  std::vector<double> layers;
  double factor = 1;

  double Seconds(const LayerRange& range) const { return factor * SumOfLayers(layers, range); }
};

Fitted FitLut(const PredictorKnowledge& knowledge, Observations measured, Observations samples) {
  LookUpTable table{std::vector<double>(static_cast<size_t>(knowledge.work.layers()), 0)};
  for (const Observation& one : measured) {
    if (one.range.first_layer == one.range.last_layer)
      table.layers[static_cast<size_t>(one.range.first_layer)] = one.seconds;
  }
  for (size_t l = 0; l < table.layers.size(); ++l) {
    if (table.layers[l] > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("lut: layer ", l, " was not measured by itself"));
  }
  double log_factor = 0;
  for (const Observation& one : samples)
    log_factor += std::log(one.seconds / SumOfLayers(table.layers, one.range));
  if (!samples.empty()) table.factor = std::exp(log_factor / static_cast<double>(samples.size()));
  return Predictor(std::move(table));
}

// FTPipeHD: central's times, multiplied by one ratio.
struct RatioToCentral {
  KnownDevice central;
  double ratio = 1;

  double Seconds(const LayerRange& range) const { return ratio * central.Seconds(range); }
};

// The plain device of the nearest batch size, else the first one; null without any.
const KnownDevice* CentralOf(const PredictorKnowledge& knowledge) {
  const KnownDevice* best = nullptr;
  const auto rank = [&](const KnownDevice& device) {
    return std::pair(!device.central(), std::abs(device.batch() - knowledge.batch));
  };
  for (const KnownDevice& device : *knowledge.known) {
    if (best == nullptr || rank(device) < rank(*best)) best = &device;
  }
  return best;
}

// The last report counts, as FTPipeHD has it; before any, the measured ranges.
Fitted FitRatio(const PredictorKnowledge& knowledge, Observations measured, Observations samples) {
  const KnownDevice* central = CentralOf(knowledge);
  if (central == nullptr) return absl::InvalidArgumentError("ratio: no device is known");
  if (!samples.empty()) measured = samples.subspan(samples.size() - 1);
  std::vector<double> own, theirs;
  for (const Observation& one : measured) {
    own.push_back(one.seconds);
    theirs.push_back(central->Seconds(one.range));
  }
  return Predictor(RatioToCentral{*central, CapacityRatio(own, theirs)});
}

// A line through the measured ranges. Where it falls to 0 or below, the fastest of them is the
// least.
struct LineOverMacs {
  ModelWork work;
  FlopsLine line;
  double least = 0;

  double Seconds(const LayerRange& range) const {
    return std::max(line.Seconds(work.Macs(range)), least);
  }
};

Fitted FitFlops(const PredictorKnowledge& knowledge, Observations measured, Observations samples) {
  std::vector<double> macs, seconds;
  for (const Observation& one : Both(measured, samples)) {
    macs.push_back(knowledge.work.Macs(one.range));
    seconds.push_back(one.seconds);
  }
  if (seconds.empty()) return absl::InvalidArgumentError("flops: nothing was measured");
  const double least = *std::min_element(seconds.begin(), seconds.end()) / 10;
  return Predictor(LineOverMacs{knowledge.work, FitFlopsLine(macs, seconds), least});
}

// ---- what rows ask to be measured

std::vector<LayerRange> Informative(const PredictorKnowledge& k) { return k.Informative(); }
std::vector<LayerRange> Ten(const PredictorKnowledge& k) { return k.TenOnce(); }
std::vector<LayerRange> EachLayer(const PredictorKnowledge& k) {
  std::vector<LayerRange> ranges;
  for (int l = 0; l < k.work.layers(); ++l) ranges.push_back({l, l});
  return ranges;
}

std::string MlpFile(absl::string_view) { return "mlp.network"; }
std::string AcceptFile(absl::string_view model) {
  return absl::StrCat("accept_", model, ".network");
}

constexpr PredictorRow kRows[] = {
    {"mlp", "a network that corrects the mixture", "mlp", MlpFile, false, Informative,
     FitMlpOrColdStart},
    {"accept", "AccEPT's network", "accept", AcceptFile, true, Ten, FitAccept},
    {"accept+", "the mean of five of AccEPT's networks", "accept", AcceptFile, true, Ten,
     FitAcceptPlus},
    {"mixture", "known devices, weighted by how alike they are", "", nullptr, false, Informative,
     FitMixture},
    {"lut", "the sum of the layers, each measured by itself", "", nullptr, false, EachLayer,
     FitLut},
    {"ratio", "FTPipeHD: a known device's times by one ratio", "", nullptr, true, Informative,
     FitRatio},
    {"flops", "a line over FLOPs", "", nullptr, false, Ten, FitFlops},
};

// The ranges that every known device measured.
std::vector<LayerRange> MeasuredByAll(absl::Span<const KnownDevice> known) {
  std::vector<LayerRange> ranges = known[0].MeasuredRanges();
  for (const KnownDevice& device : known)
    std::erase_if(ranges, [&](const LayerRange& range) { return !device.Measured(range); });
  return ranges;
}

}  // namespace

absl::StatusOr<PredictorKnowledge> PredictorKnowledge::Create(const ModelSpec& model, int64_t batch,
                                                              std::vector<KnownDevice> known) {
  RUNNEL_ASSIGN_OR_RETURN(ModelWork work, ModelWork::Create(model, batch));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<LayerRange> ten,
                          RepresentativeRanges(model, kMaxProfiledMacs));
  PredictorKnowledge knowledge{model.name, std::move(work), batch,
                               std::make_shared<const std::vector<KnownDevice>>(std::move(known)),
                               std::move(ten)};
  RUNNEL_ASSIGN_OR_RETURN(knowledge.frozen, FrozenShare::Create(model));
  return knowledge;
}

std::vector<LayerRange> PredictorKnowledge::Informative() const {
  if (known->empty()) return TenOnce();
  const std::vector<LayerRange> ranges = MeasuredByAll(*known);
  std::vector<LayerRange> chosen;
  for (const size_t i : MostInformativeRanges(work, ranges, {}, {}, kRepresentatives))
    chosen.push_back(ranges[i]);
  return chosen;
}

std::vector<LayerRange> PredictorKnowledge::TenOnce() const {
  std::vector<LayerRange> chosen;
  for (const LayerRange& range : ten) {
    if (std::find(chosen.begin(), chosen.end(), range) == chosen.end()) chosen.push_back(range);
  }
  return chosen;
}

absl::Span<const PredictorRow> BuiltinPredictors() { return kRows; }

std::vector<std::string> PredictorNames() {
  std::vector<std::string> names;
  for (const PredictorRow& row : kRows) names.emplace_back(row.name);
  return names;
}

absl::StatusOr<const PredictorRow*> FindPredictor(absl::string_view name) {
  for (const PredictorRow& row : kRows) {
    if (row.name == name) return &row;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("predictor ", name, ": is none of ", absl::StrJoin(PredictorNames(), ", ")));
}

bool UsesNetwork(const PredictorRow& row, const PredictorKnowledge& knowledge) {
  return row.network_file != nullptr && !knowledge.known->empty();
}

absl::Status CheckKnowledge(const PredictorRow& row, const PredictorKnowledge& knowledge) {
  if (row.needs_profiles && knowledge.known->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("predictor ", row.name, ": no profile of ", knowledge.model,
                     " is known, from which it learns; take mlp or flops"));
  }
  if (!UsesNetwork(row, knowledge) || knowledge.network.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("predictor ", row.name, ": needs its network for ", knowledge.model,
                   "; write it with runnel-predictor train, or take mixture"));
}

LayerPrior ColdStartPrior(const ModelWork& work, absl::Span<const Observation> measured) {
  std::vector<double> macs, seconds;
  for (const Observation& one : measured) {
    macs.push_back(work.Macs(one.range));
    seconds.push_back(one.seconds);
  }
  const FlopsLine line = FitFlopsLine(macs, seconds);
  // The intercept of the FLOPs line belongs to a whole range; each layer gets an equal part of it.
  const double fastest = *std::min_element(seconds.begin(), seconds.end());
  const double least = fastest / work.layers() / 10;
  std::vector<double> layers;
  for (int l = 0; l < work.layers(); ++l) {
    layers.push_back(
        std::max(line.intercept / work.layers() + line.slope * work.Macs({l, l}), least));
  }
  return PriorFromEstimates(layers, work);
}

}  // namespace runnel
