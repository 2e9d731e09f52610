#pragma once

// The user's settings: one field a flag of `runnel-central train`. The table of all flags is
// RunFields (central/settings/run_fields.h); journals and check-points hold the fields under the
// same names.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compress/link_bits.h"
#include "proto/base/backend_options.h"
#include "proto/base/model/number_format.h"
#include "proto/base/training/codecs/codec_schedule.h"
#include "proto/base/training/training_defaults.h"
#include "proto/base/training/training_fields.h"

namespace runnel {

// RunSettings::recompute: the plan says which layers.
inline constexpr absl::string_view kDecidedRecompute = "auto";

struct RunSettings {
  std::string model = "lenet";
  std::vector<std::string> rewrites;  // of the model, in order (partition/zoo/rewrites)
  // Layers, as MarkRecomputed has them, or "off"; "auto": those of stages that would not fit. Empty:
  // none.
  std::string recompute;
  std::string stash;    // a floating number type, or "off"; empty: the recipe's own
  std::string gates;    // as AddGates has them, or "off"; empty: none
  std::string dataset;  // empty: the model's default
  std::string data_dir;
  std::string classes;          // whose samples are taken (central/data/class_filter.h); empty: all
  std::string init_from;        // weights to begin with (StartOf); empty: drawn, or the model's own
  double validation_share = 0;  // of the training samples, held back; 0: none
  int64_t local_workers = 1;
  int64_t workers = 0;              // daemons that dial in
  std::optional<int64_t> at_least;  // of these, with which training begins; none: all
  std::string schedule = "async_1f1b";
  std::string policy = "uniform";
  std::string replan = "auto";     // move layers at barriers: on, off, or as the policy does
  std::string predictor;           // whose times plans are made from; empty: measured layers
  std::string predictor_profiles;  // folder of what is known beforehand; empty: nothing
  CodecSchedule codec_forward;
  CodecSchedule codec_backward;
  // Most that codecs of --bits bandwidth may add to the gradients' noise, % of it.
  double learning_budget = kLearningBudgetPercent;
  // Step from which on it is measured what codecs add to the gradients' noise; 0: when it costs
  // little; -1: never.
  int64_t measure_noise = 0;
  std::string bits;  // by epoch (compress/bit_schedule.h); empty: what the codecs say
  std::string recipe = "fp32";
  std::string backend = "auto";
  BackendOptions backend_options;  // of local workers
  std::vector<int64_t> caps;       // empty: the schedule's
  int64_t epochs = -1;             // -1: the model's default
  int64_t max_batches = 0;         // optimizer steps from the run's start; 0: all epochs
  // Bits of integer recipes (ParseGradientBitsSetting); empty: their default.
  std::string gradient_bits;
  int64_t barrier_every = 100;
  int64_t replicate_every = 0;     // ReplicationOptions::every
  int64_t eval_every = 1;          // epochs; 0: only at the end; -1: never
  int64_t eval_cost_percent = 20;  // share of the training time; 0: no limit
  int64_t early_stop = 0;          // evaluations without a new best; 0: never
  // The user's part of the training settings; the rest is -1 (TrainingWithoutFlags) until
  // WithDefaults. The resolved settings are RunSetup::training.
  TrainingSettings training = TrainingWithoutFlags();
  double link_mbps = 0;
  double link_delay_ms = 0;
  // What the user says of links: a file, or the Mbps of each of them, each way, packet headers and
  // all, until they are measured. Empty: nothing, so the first plan assumes link_mbps.
  std::string links;
  int64_t worker_threads = 1;
  std::string checkpoint_dir;
  std::string journal;
  std::string log;
  std::string tensorboard;
  std::string summary;
  std::string listen = "127.0.0.1:0";  // control address for dialling workers
  std::string report;
  std::optional<int64_t> metrics_port;  // none: no HTTP; 0: any free port
  int64_t linger_s = 60;                // how long the page of a finished run stays for its reader
  int64_t worker_timeout_s = 60;        // how long central waits for its workers to join

  friend bool operator==(const RunSettings&, const RunSettings&) = default;
};

// The format of the run's numbers; InvalidArgument for a recipe that is not known. Which
// profiles a family has, the workers tell.
absl::StatusOr<NumberFormat> FormatOf(const RunSettings& settings);
// And with what the model, as it is trained, has beside its boundaries.
absl::StatusOr<NumberFormat> FormatOf(const RunSettings& settings, const ModelSpec& model);

// What the user gave that the recipe or optimizer does not look at, a line for people; empty if all is used.
std::string IgnoredSettings(const RunSettings& settings, const NumberFormat& format);

// What a run of settings after WithDefaults does, a line for people: network, data, length, and what
// steps the weights.
std::string TrainingText(const RunSettings& settings, absl::string_view model,
                         const NumberFormat& format);

// Fills every "model's default" field, so that the result says all that training depends on, but
// for the codecs (ResolveCodecs). `micro_batches` are the schedule's where the user says nothing.
RunSettings WithDefaults(RunSettings settings, const TrainingDefaults& defaults,
                         absl::string_view default_dataset, int64_t micro_batches,
                         const NumberFormat& format = {});

// InvalidArgument names the flag, the value and what would be right: sizes and counts below 1, NaN
// rates, a rate or weight decay below 0, momentum outside [0, 1), caps below 1, ...
absl::Status CheckSettings(const RunSettings& settings);

// One JSON object, keys = flag names without dashes in front ("batch-size").
std::string SettingsToJson(const RunSettings& settings);
// InvalidArgument names the key that is unknown or of the wrong type, or where the JSON breaks.
absl::StatusOr<RunSettings> SettingsFromJson(absl::string_view json);

}  // namespace runnel
