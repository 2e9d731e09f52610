#include "central/run/run_setup.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/data/class_filter.h"
#include "central/data/validation_split.h"
#include "central/planning/kept_samples.h"
#include "central/run/own_model.h"
#include "central/run/rule_checks.h"
#include "central/run/small_batches.h"
#include "central/settings/codec_settings.h"
#include "central/settings/run_fields.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/barrier_every.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/int8_inference.h"
#include "proto/base/training/mixed_label.h"
#include "proto/base/training/rates/rate.h"
#include "proto/base/training/recipe_family.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

// The variance of a single sample is 0, so batch norm needs two.
constexpr int64_t kMinSamplesWithBatchNorm = 2;
// The best share measured for caps that hide links; with the whole of it training diverges.
constexpr double kRaisedLookAhead = 0.5;
// FTPipeHD looks at its first measurements at batch 10, then at every barrier.
constexpr int64_t kFirstPolicyStep = 10;

std::string SamplesText(int64_t tokens, const Shape& shape) {
  return absl::StrCat(tokens > 0 ? "tokens " : "numbers ", shape.ToString());
}

absl::Status CheckData(const ModelSpec& model, const std::string& name, const DatasetSplits& data) {
  const auto wrong = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("--dataset ", name, ": ", what...));
  };
  RUNNEL_ASSIGN_OR_RETURN(const int64_t labels, LabelsPerSample(model));
  for (const Dataset* split : {data.train.get(), data.test.get()}) {
    if (!(split->sample_shape() == model.input) || (split->tokens() > 0) != (model.tokens() > 0)) {
      return wrong("its samples are ", SamplesText(split->tokens(), split->sample_shape()),
                   ", model ", model.name, " takes ", SamplesText(model.tokens(), model.input));
    }
    if (split->tokens() > model.tokens()) {
      return wrong("has tokens below ", split->tokens(), ", the embedding of model ", model.name,
                   " has ", model.tokens(), " rows; give it as many as there are tokens");
    }
    if (split->classes() != model.classes)
      return wrong("has ", split->classes(), " classes, model ", model.name, " ", model.classes);
    if (split->labels_per_sample() != labels) {
      return wrong("has ", split->labels_per_sample(), " labels a sample, model ", model.name, " ",
                   labels);
    }
  }
  return absl::OkStatus();
}

// Checks of the pipeline before the workers join.
absl::Status CheckStages(const RunSetup& setup) {
  if (setup.plain_loop) return absl::OkStatus();
  if (setup.workers > setup.model.layer_count() && !setup.policy->chooses_devices) {
    return absl::InvalidArgumentError(absl::StrCat(
        setup.workers, " stages cannot be cut from the ", setup.model.layer_count(), " layers of ",
        setup.model.name, ": ask for at most ", setup.model.layer_count(),
        " workers, or for --policy runnel, which leaves devices out"));
  }
  const std::vector<int64_t>& caps = setup.settings.caps;
  if (!caps.empty() && static_cast<int>(caps.size()) != setup.workers) {
    return absl::InvalidArgumentError(absl::StrCat("--caps ", absl::StrJoin(caps, ","), ": ",
                                                   caps.size(), " caps for ", setup.workers,
                                                   " stages"));
  }
  return absl::OkStatus();
}

// Stages on other hosts dial the local workers after the first one, at the address that central
// listens on.
absl::Status CheckListenAddress(const RunSettings& settings) {
  const absl::StatusOr<Address> address = ParseAddress(settings.listen);
  const bool are_dialled = settings.workers > 0 && settings.local_workers > 1;
  if (!are_dialled || !address.ok() || !address->is_wildcard()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--listen ", settings.listen,
                   ": other hosts dial the local workers too, so it "
                   "must be the address by which they reach this host"));
}

// Remedies against staleness need a schedule that has stale weights.
absl::Status CheckStaleness(const RunSettings& settings, const ScheduleRow& schedule) {
  const TrainingSettings& training = settings.training;
  if (!schedule.drains_each_step) {
    if (training.aggregate_every == 0 || training.micro_batches < 2) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--aggregate-every ", training.aggregate_every, ": with --micro-batches ",
                     training.micro_batches,
                     " a stage has too few weight versions to average; leave one of them out"));
  }
  for (const RunField& field : RunFields()) {
    if (field.flag.group != SettingGroup::kStaleness || !IsGiven(field, settings)) continue;
    if (SettingText(field, settings) == "0") continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", field.flag.name, ": schedule ", settings.schedule,
                     " has no stale weights; leave it out, or use async_1f1b"));
  }
  return absl::OkStatus();
}

absl::Status CheckClipping(const RunSettings& settings, const ScheduleRow& schedule) {
  const double norm = settings.training.clip_norm;
  if (norm == 0 || schedule.drains_each_step || settings.local_workers == 0)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--clip-norm ", norm, ": stages of schedule ", settings.schedule,
                   " step before the whole gradient is known; use --schedule sync_1f1b"));
}

// `text` is the user's --augment; empty if there is none.
absl::StatusOr<Augmentation> ResolveAugmentation(const std::string& text, const DatasetRow& dataset,
                                                 const ModelSpec& model,
                                                 const NumberFormat& format) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--augment ", text, ": ", what));
  };
  if (text == "on" && dataset.augmentation == "off") {
    return wrong(absl::StrCat("data set ", dataset.name,
                              " has no augmentation of its own; name the transforms"));
  }
  if (text.empty() || text == "on") return Augmentation::Parse(dataset.augmentation);
  const absl::StatusOr<Augmentation> given = Augmentation::Parse(text);
  if (!given.ok()) return wrong(given.status().message());
  const absl::Status fits = given->CheckFits(model.input);
  if (!fits.ok()) return wrong(fits.message());
  if (!given->Has(Transform::kMixup)) return given;
  if (format.integer_parameters())
    return wrong("mixup: integer recipes have a loss of whole labels only; take --recipe fp32");
  if (model.classes > kMostMixedClasses)
    return wrong(absl::StrCat("mixup: the model has ", model.classes, " classes; at most ",
                              kMostMixedClasses));
  return given;
}

// The training settings in use: the user's, completed from model and data.
absl::StatusOr<TrainingSettings> TrainingOf(const RunSettings& settings, const ModelSpec& model,
                                            int64_t samples) {
  TrainingSettings training = settings.training;
  training.dataset_samples = samples;
  training.min_samples = model.has_batch_norm() ? kMinSamplesWithBatchNorm : 1;
  training.look_ahead = std::max(training.look_ahead, 0.0);
  training.raised_look_ahead = training.look_ahead;
  if (!settings.gradient_bits.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const GradientBitsSetting bits,
                            ParseGradientBitsSetting(settings.gradient_bits));
    training.gradient_bits = bits.steps;
  }
  return training;
}

bool IsOwnData(const RunSettings& settings) {
  const absl::StatusOr<const DatasetRow*> dataset = FindDataset(settings.dataset);
  return dataset.ok() && (*dataset)->is_own();
}

// Says every two seconds how far the data are read.
std::function<void(double)> ProgressOf(const RunSettings& settings, Logger* logger) {
  if (logger == nullptr) return nullptr;
  constexpr int64_t kSilenceNs = int64_t{2'000'000'000};
  const auto now_ns = [] { return MonotonicClock().NowNanos(); };
  return [=, dataset = settings.dataset, told_ns = now_ns()](double share) mutable {
    if (now_ns() - told_ns < kSilenceNs) return;
    told_ns = now_ns();
    logger->Log(Severity::kInfo, absl::StrFormat("%s: %.0f %% read", dataset, share * 100));
  };
}

absl::StatusOr<DatasetSplits> LoadDataset(const RunSettings& settings, Logger* logger) {
  RUNNEL_ASSIGN_OR_RETURN(
      DatasetSplits data,
      runnel::LoadDataset(settings.dataset, settings.data_dir, settings.training.seed,
                          ProgressOf(settings, logger)));
  if (!settings.classes.empty()) {
    absl::StatusOr<DatasetSplits> kept = OfClasses(std::move(data), settings.classes);
    if (!kept.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--classes ", settings.classes, ": ", kept.status().message()));
    }
    data = *std::move(kept);
  }
  if (settings.validation_share == 0) return data;
  absl::StatusOr<DatasetSplits> split =
      HoldBackValidation(std::move(data), settings.validation_share, settings.training.seed);
  if (split.ok()) return split;
  return absl::InvalidArgumentError(absl::StrCat("--validation-share ", settings.validation_share,
                                                 ": ", split.status().message()));
}

SampleFacts FactsOf(const Dataset& data) { return {data.sample_shape(), data.classes()}; }

// Where the data are the user's own, the model for them.
absl::StatusOr<ModelSpec> ModelOf(const RunSettings& settings,
                                  const std::optional<SampleFacts>& samples) {
  RUNNEL_ASSIGN_OR_RETURN(ModelSpec model, ModelNamed(settings.model));
  if (!IsOwnData(settings)) return model;
  if (samples.has_value()) return ModelFor(std::move(model), samples->shape, samples->classes);
  RUNNEL_ASSIGN_OR_RETURN(const DatasetSplits data, LoadDataset(settings, nullptr));
  const SampleFacts facts = FactsOf(*data.train);
  RUNNEL_ASSIGN_OR_RETURN(model, ModelFor(std::move(model), facts.shape, facts.classes));
  RUNNEL_RETURN_IF_ERROR(CheckData(model, settings.dataset, data));
  return model;
}

// With a target of cost the price only has to lead there, which the usual one does too slowly.
std::string GatesText(const RunSettings& settings) {
  const bool has_price = absl::StrContains(settings.gates, '@');
  return HasCostTarget(settings.training) && !has_price ? absl::StrCat(settings.gates, "@beta:0.1")
                                                        : settings.gates;
}

absl::StatusOr<ModelSpec> RewrittenModel(const RunSettings& settings, ModelSpec model) {
  absl::StatusOr<ModelSpec> rewritten = Rewrite(std::move(model), settings.rewrites);
  if (!rewritten.ok())
    return absl::InvalidArgumentError(absl::StrCat("--rewrite ", rewritten.status().message()));
  const bool is_given = !settings.recompute.empty() && settings.recompute != "off";
  if (is_given && settings.recompute != kDecidedRecompute) {
    rewritten = MarkRecomputed(*std::move(rewritten), settings.recompute);
    if (!rewritten.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--recompute ", settings.recompute, ": ", rewritten.status().message()));
    }
  }
  if (!settings.stash.empty() && settings.stash != "off") {
    rewritten = WithStash(*std::move(rewritten), settings.stash);
    if (!rewritten.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--stash ", settings.stash, ": ", rewritten.status().message()));
    }
  }
  if (settings.gates.empty() || settings.gates == "off") return rewritten;
  rewritten = AddGates(*std::move(rewritten), GatesText(settings));
  if (rewritten.ok()) return rewritten;
  return absl::InvalidArgumentError(
      absl::StrCat("--gates ", settings.gates, ": ", rewritten.status().message()));
}

// A plan may have any layer made again.
absl::Status CheckDecidedRecompute(const RunSettings& settings, const RunSetup& setup,
                                   const RecipeFamily& family) {
  if (settings.recompute != kDecidedRecompute) return absl::OkStatus();
  const auto refused = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--recompute auto: ", why));
  };
  ModelSpec again = setup.model;
  for (LayerSpec& layer : again.layers) {
    layer.recompute = true;
    if (SizeOf(layer.stash) < SizeOf(setup.format.activation)) {
      return refused(
          "values that are made again are not rounded as --stash has it, and weights would follow "
          "from the plan; give the layers, or leave --stash out");
    }
  }
  const absl::Status trains = CheckTrainable(again, family);
  return trains.ok() ? trains : refused(trains.message());
}

void AddNote(const std::string& note, std::string& notes) {
  if (!note.empty()) absl::StrAppend(&notes, notes.empty() ? "" : "; ", note);
}

}  // namespace

absl::StatusOr<RunSetup> SetUpRun(RunSettings settings, const std::optional<SampleFacts>& samples) {
  RUNNEL_RETURN_IF_ERROR(CheckSettings(settings));
  RUNNEL_RETURN_IF_ERROR(CheckGradientBitsRule(settings));
  RUNNEL_RETURN_IF_ERROR(CheckPrecision(settings));
  RunSetup setup;
  RUNNEL_ASSIGN_OR_RETURN(setup.row, FindModel(settings.model));
  RUNNEL_ASSIGN_OR_RETURN(ModelSpec model, ModelOf(settings, samples));
  RUNNEL_ASSIGN_OR_RETURN(setup.model, RewrittenModel(settings, std::move(model)));
  RUNNEL_RETURN_IF_ERROR(CheckCostTarget(settings, setup.model));
  RUNNEL_ASSIGN_OR_RETURN(setup.format, FormatOf(settings));
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName recipe, ParseRecipeName(settings.recipe));
  if (absl::Status status = CheckTrainable(setup.model, *recipe.family); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--recipe ", settings.recipe, ": ", status.message()));
  }
  RUNNEL_RETURN_IF_ERROR(CheckDecidedRecompute(settings, setup, *recipe.family));
  setup.note = IgnoredSettings(settings, setup.format);
  RUNNEL_ASSIGN_OR_RETURN(setup.policy, FindPolicy(settings.policy));
  RUNNEL_ASSIGN_OR_RETURN(setup.schedule, FindSchedule(settings.schedule));
  RUNNEL_RETURN_IF_ERROR(CheckStaleness(settings, *setup.schedule));
  RUNNEL_RETURN_IF_ERROR(CheckClipping(settings, *setup.schedule));
  setup.settings =
      WithDefaults(std::move(settings), setup.row->defaults, setup.row->default_dataset,
                   setup.schedule->default_micro_batches, setup.format);
  RUNNEL_ASSIGN_OR_RETURN(setup.format, FormatOf(setup.settings, setup.model));
  AddNote(SmallBatchNote(setup.model, setup.settings.training), setup.note);
  RUNNEL_RETURN_IF_ERROR(ResolveCodecs(setup.format, setup.row->bit_switches, setup.settings));
  RUNNEL_RETURN_IF_ERROR(CheckCodecParameters(setup.model, setup.settings));
  setup.plain_loop = setup.settings.local_workers == 0;
  setup.workers = setup.plain_loop
                      ? 1
                      : static_cast<int>(setup.settings.local_workers + setup.settings.workers);
  RUNNEL_RETURN_IF_ERROR(CheckStages(setup));
  RUNNEL_RETURN_IF_ERROR(CheckListenAddress(setup.settings));
  RUNNEL_ASSIGN_OR_RETURN(const DatasetRow* dataset, FindDataset(setup.settings.dataset));
  std::string& augment = setup.settings.training.augment;
  RUNNEL_ASSIGN_OR_RETURN(setup.augmentation,
                          ResolveAugmentation(augment, *dataset, setup.model, setup.format));
  augment = setup.augmentation.text();
  return setup;
}

absl::StatusOr<DatasetSplits> LoadData(const RunSetup& setup, Logger* logger) {
  RUNNEL_ASSIGN_OR_RETURN(DatasetSplits data, LoadDataset(setup.settings, logger));
  RUNNEL_RETURN_IF_ERROR(CheckData(setup.model, setup.settings.dataset, data));
  return data;
}

absl::Status SetTrainingSamples(int64_t samples, RunSetup& setup) {
  RunSettings& settings = setup.settings;
  RUNNEL_ASSIGN_OR_RETURN(setup.training, TrainingOf(settings, setup.model, samples));
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(setup.training));
  const bool decides = settings.barrier_every == kDecidedBarrierEvery;
  setup.barriers = {.every = decides ? kFirstBarrierEvery : settings.barrier_every,
                    .eval_every_epochs = settings.eval_every,
                    .steps_per_epoch = batching.steps_per_epoch(),
                    .epochs = settings.epochs};
  if (MovesLayers(setup) || ChangesCodecs(setup)) setup.barriers.policy_point = kFirstPolicyStep;
  setup.total_steps = batching.steps_per_epoch() * settings.epochs;
  RUNNEL_ASSIGN_OR_RETURN(const RateChoice rate, ParseRate(settings.training.rate));
  RUNNEL_ASSIGN_OR_RETURN(const PrecisionSetting precision,
                          ParsePrecision(settings.training.precision));
  if (rate.rate->needs_run_steps || precision.kind == PrecisionSetting::Kind::kCycle)
    setup.training.run_steps = setup.total_steps;
  int64_t& stale_rate_steps = settings.training.stale_rate_steps;
  if (stale_rate_steps == -1) {
    stale_rate_steps = setup.schedule->drains_each_step ? 0 : (setup.total_steps + 1) / 2;
  }
  setup.training.stale_rate_steps = stale_rate_steps;
  const bool helps_raised =
      settings.training.look_ahead == -1 && !setup.schedule->drains_each_step &&
      !setup.format.integer_parameters() && setup.training.aggregate_every == 0;
  if (helps_raised) setup.training.raised_look_ahead = kRaisedLookAhead;
  setup.stop_step = settings.max_batches > 0 ? std::min(settings.max_batches, setup.total_steps)
                                             : setup.total_steps;
  return absl::OkStatus();
}

absl::Status UseIntegers(ModelSpec model, RunSetup& setup) {
  RunSettings& settings = setup.settings;
  setup.model = std::move(model);
  setup.format = kInt8InferenceNumbers;
  settings.recipe = std::string(kInt8Inference);
  settings.codec_forward = settings.codec_backward = CodecSchedule(LosslessCodec(setup.format));
  settings.bits.clear();
  settings.gradient_bits.clear();
  settings.predictor.clear();
  if (setup.policy->basis == PlanBasis::kPredicted || setup.policy->next != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--policy ", settings.policy,
                     ": plans training; an evaluation takes runnel, dp or uniform"));
  }
  return CheckStages(setup);
}

absl::StatusOr<LoadedRun> SetUpAndLoad(RunSettings settings, Logger* logger) {
  LoadedRun run;
  if (IsOwnData(settings)) {
    // The model follows the data, which are read once.
    RUNNEL_ASSIGN_OR_RETURN(run.data, LoadDataset(settings, logger));
    RUNNEL_ASSIGN_OR_RETURN(run.setup, SetUpRun(std::move(settings), FactsOf(*run.data.train)));
    RUNNEL_RETURN_IF_ERROR(CheckData(run.setup.model, run.setup.settings.dataset, run.data));
    AddNote(run.data.note, run.setup.note);
  } else {
    RUNNEL_ASSIGN_OR_RETURN(run.setup, SetUpRun(std::move(settings)));
    RUNNEL_ASSIGN_OR_RETURN(run.data, LoadData(run.setup, logger));
  }
  run.setup.data_text = DescriptionText(run.data.train->Describe());
  RUNNEL_RETURN_IF_ERROR(SetTrainingSamples(run.data.train->size(), run.setup));
  const Dataset& train = *run.data.train;
  const bool is_session = train.session() > 0 || train.new_samples() > 0;
  const RunSettings& resolved = run.setup.settings;
  if (!run.setup.plain_loop) {
    RUNNEL_RETURN_IF_ERROR(CheckKeptSamples({run.setup.model, resolved.codec_forward, train.size()},
                                            resolved.training.augment, is_session));
  }
  return run;
}

bool NeedsProfile(const RunSetup& setup) {
  if (setup.plain_loop) return false;
  return setup.policy->needs_profile() || (setup.workers > 1 && BitsFollowLinks(setup.settings));
}

bool MovesLayers(const RunSetup& setup) {
  if (setup.plain_loop || setup.workers < 2 || !setup.policy->needs_profile()) return false;
  return setup.settings.replan == "auto" ? setup.policy->replans : setup.settings.replan == "on";
}

bool ChangesCodecs(const RunSetup& setup) {
  return !setup.plain_loop && setup.workers > 1 && BitsFollowLinks(setup.settings) &&
         setup.settings.replan != "off";
}

}  // namespace runnel
