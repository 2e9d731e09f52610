#pragma once

// The table of latency predictors for runs and reports. A row turns the measured sub-models of a
// device, and the knowledge of other devices, into the time of every range of layers.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "predictor/fit/device_mixture.h"
#include "predictor/fit/features.h"
#include "predictor/networks/network_file.h"
#include "predictor/run/frozen_share.h"
#include "predictor/run/range_predictor.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// All data that a row may use before a device is measured. A value.
struct PredictorKnowledge {
  std::string model;  // name
  ModelWork work;
  int64_t batch = 0;            // samples of a micro-batch
  DeviceMixture::Known known;   // devices that were profiled with this model; may be empty
  std::vector<LayerRange> ten;  // AccEPT's ten (sub_models.h); some are there twice
  std::optional<PredictorNetwork> network = {};  // the one that the row evaluates
  FrozenShare frozen = {};  // RunPredictor scales by it: rows know models that train as a whole

  // The ten most informative ranges (informative_ranges.h) of those that all known devices
  // measured. Without known devices AccEPT's ten, each once.
  std::vector<LayerRange> Informative() const;
  // AccEPT's ten, each once.
  std::vector<LayerRange> TenOnce() const;

  // InvalidArgument as InferShapes.
  static absl::StatusOr<PredictorKnowledge> Create(const ModelSpec& model, int64_t batch,
                                                   std::vector<KnownDevice> known);
};

struct PredictorRow {
  absl::string_view name;
  absl::string_view help;     // a few words for people
  absl::string_view network;  // whose network it evaluates: a row's name; empty: it has none
  // The network's file for a model, in the folder of the profiles that it learned from; null: none.
  std::string (*network_file)(absl::string_view model);
  // Whether the row needs a profile of the model; else it starts cold without one.
  bool needs_profiles;
  // The ranges to measure on a device, each once.
  std::vector<LayerRange> (*ranges)(const PredictorKnowledge& knowledge);
  // Predicts a device. measured: the times of ranges(), some or all; samples: ranges that were
  // measured later, oldest first. InvalidArgument: as CheckObservations; a time that the row needs
  // is not there; the network does not fit the model.
  absl::StatusOr<std::unique_ptr<const RangePredictor>> (*fit)(
      const PredictorKnowledge& knowledge, absl::Span<const Observation> measured,
      absl::Span<const Observation> samples);
};

absl::Span<const PredictorRow> BuiltinPredictors();
std::vector<std::string> PredictorNames();
// InvalidArgument lists the names.
absl::StatusOr<const PredictorRow*> FindPredictor(absl::string_view name);

// Whether the row reads a network of this knowledge: a cold start has none.
bool UsesNetwork(const PredictorRow& row, const PredictorKnowledge& knowledge);
// InvalidArgument names what the row lacks (a profile, its network) and the fix.
absl::Status CheckKnowledge(const PredictorRow& row, const PredictorKnowledge& knowledge);

// Prior for a model without profiles: each layer's time by the FLOPs line through the measured
// ranges. Needs at least one.
LayerPrior ColdStartPrior(const ModelWork& work, absl::Span<const Observation> measured);

}  // namespace runnel
