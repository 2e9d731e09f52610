#pragma once

// From what the user asked for to what a run needs: every name looked up in its table, every
// default filled in, and model, data and settings checked against each other before any process is
// started. Reading data and measuring this host are apart, for those commands that need them.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "central/data/augmentation.h"
#include "central/data/dataset.h"
#include "central/settings/run_settings.h"
#include "partition/policy.h"
#include "partition/schedule.h"
#include "partition/zoo/zoo.h"
#include "proto/base/log.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/training.h"

namespace runnel {

struct RunSetup {
  RunSettings settings;           // defaults filled in
  const ModelRow* row = nullptr;  // of the model
  ModelSpec model;
  NumberFormat format;        // of the recipe
  Augmentation augmentation;  // of the training samples
  std::string note;           // settings that the recipe does not look at; empty: none
  std::string data_text;      // DescriptionText of the data, once they are loaded
  const PolicyRow* policy = nullptr;
  const ScheduleRow* schedule = nullptr;
  int workers = 1;  // local and dialling ones
  bool plain_loop = false;
  // The rest depends on the number of training samples (SetTrainingSamples).
  TrainingSettings training;
  BarrierRule barriers;
  int64_t total_steps = 0;  // of all epochs
  int64_t stop_step = 0;    // total_steps, or --max-batches if that is less
};

// What a model must take.
struct SampleFacts {
  Shape shape;  // without the batch
  int64_t classes = 0;
};

// Checks the settings; measures nothing and reads no file, but --model json:FILE or onnx:FILE, and the user's own data where a model
// has to follow them and `samples` does not say what they are. Errors name the flag: unknown names
// (with what there is), values out of range, a model that the recipe cannot train (with layer and
// operator), more stages than layers, caps of the wrong number.
absl::StatusOr<RunSetup> SetUpRun(RunSettings settings,
                                  const std::optional<SampleFacts>& samples = std::nullopt);

// The data set of the settings. Errors name the flag or file: data that does not load or does not
// fit the model. logger: told how far it is while that takes long; may be null.
absl::StatusOr<DatasetSplits> LoadData(const RunSetup& setup, Logger* logger);

// Sets what depends on the number of training samples. InvalidArgument: the training settings make
// no sense for so many.
absl::Status SetTrainingSamples(int64_t samples, RunSetup& setup);

// Makes the run of the zoo's model one that evaluates it in integers by a pipeline
// (central/records/quantized_stages.h). InvalidArgument: more stages than `model` has layers, a
// policy that plans training.
absl::Status UseIntegers(ModelSpec model, RunSetup& setup);

// All of the above, but for UseIntegers.
struct LoadedRun {
  RunSetup setup;
  DatasetSplits data;
};
absl::StatusOr<LoadedRun> SetUpAndLoad(RunSettings settings, Logger* logger);

// Whether devices are measured before the first plan: for the policy, or for --bits bandwidth.
bool NeedsProfile(const RunSetup& setup);
// Whether layers may move at a barrier.
bool MovesLayers(const RunSetup& setup);
// Whether the codecs of links may change at a barrier.
bool ChangesCodecs(const RunSetup& setup);

}  // namespace runnel
