#include "proto/base/training/training_fields.h"

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "proto/base/model/rescale.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/batch_split.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/base/training/dials/precision.h"
#include "proto/base/training/optimizer.h"
#include "proto/base/training/rates/rate.h"
#include "proto/base/training/weight_average.h"

namespace runnel {
namespace {

using S = TrainingSettings;

constexpr SettingRange kCount = {1, kMaxSettingCount};
constexpr SettingRange kCountOrNone = {0, kMaxSettingCount};
constexpr SettingRange kRate = {0, 1e12};
constexpr SettingRange kShare = {0, 1};

// In the order in which they are stored and listed.
constexpr TrainingField kFields[] = {
    {.name = "seed",
     .member = &S::seed,
     .always_stored = true,
     .flag = {"seed", SettingGroup::kTraining, "seed of all random draws", "7"}},
    {.name = "dataset_samples",
     .member = &S::dataset_samples,
     .range = {1, 1e12},
     .always_stored = true},
    {.name = "batch_size",
     .member = &S::batch_size,
     .range = kCount,
     .always_stored = true,
     .flag = {"batch-size", SettingGroup::kTraining, "samples of one optimizer step", "32",
              "the model's"}},
    {.name = "micro_batches",
     .member = &S::micro_batches,
     .range = kCount,
     .always_stored = true,
     .flag = {"micro-batches", SettingGroup::kTraining,
              "parts of one optimizer step that flow through the pipeline one after the other; on "
              "async_1f1b weights are the less stale the more there are",
              "8", "the schedule's, async 1, sync 4"}},
    {.name = "min_samples", .member = &S::min_samples, .range = kCount, .always_stored = true},
    {.name = "eval_batch_size",
     .member = &S::eval_batch_size,
     .range = kCount,
     .always_stored = true,
     .flag = {"eval-batch-size", SettingGroup::kTraining, "samples at once in evaluation", "100",
              "the batch size"}},
    {.name = "learning_rate",
     .member = &S::learning_rate,
     .range = kRate,
     .always_stored = true,
     .floating_only = true,
     .flag = {"lr", SettingGroup::kTraining, "learning rate", "0.05",
              "the model's or the optimizer's"}},
    {.name = "optimizer",
     .member = &S::optimizer,
     .flag = {"optimizer", SettingGroup::kTraining,
              "rule by which gradients change weights, NAME[:PARAMETERS]", "adamw",
              "nag_stale; integers step by --gradient-bits"},
     .check = [](absl::string_view text) { return ParseOptimizer(text).status(); }},
    {.name = "momentum",
     .member = &S::momentum,
     .range = {0, 1, true},
     .always_stored = true,
     .floating_only = true,
     .flag = {"momentum", SettingGroup::kTraining, "momentum of optimizer sgd", "0.8",
              "the model's"}},
    {.name = "weight_decay",
     .member = &S::weight_decay,
     .range = kRate,
     .always_stored = true,
     .floating_only = true,
     .flag = {"weight-decay", SettingGroup::kTraining,
              "share of the weights that a step takes off, times the rate", "0.0001",
              "the model's or the optimizer's"}},
    {.name = "label_smoothing",
     .member = &S::label_smoothing,
     .range = {0, 1, true},
     .flag = {"label-smoothing", SettingGroup::kTraining,
              "share of a label that the training loss spreads evenly over all classes; 0: none",
              "0.1"}},
    {.name = "clip_norm",
     .member = &S::clip_norm,
     .range = kRate,
     .flag = {"clip-norm", SettingGroup::kTraining,
              "largest norm of a step's gradient over all layers: a larger one is scaled down to "
              "it; 0: none; synchronous schedules",
              "1"}},
    {.name = "ema",
     .member = &S::ema,
     .range = {0, 1, true},
     .flag =
         {"ema", SettingGroup::kTraining,
          "decay of a moving average of the weights over the steps; evaluations and exports take "
          "the average; 0: there is none",
          "0.999"}},
    {.name = "swa",
     .member = &S::swa,
     .flag = {"swa", SettingGroup::kTraining,
              "mean of the weights (stochastic weight averaging) from step START on, of each "
              "EVERY-th step, START[@EVERY]; evaluations and exports take it; off: there is none",
              "1000@100"},
     .check = [](absl::string_view text) { return ParseSwa(text).status(); }},
    {.name = "rate",
     .member = &S::rate,
     .floating_only = true,
     .flag = {"rate", SettingGroup::kTraining, "course of the learning rate, NAME[:PARAMETERS]",
              "constant",
              "milestones; without --milestones and --warm-up-steps one_cycle in short runs of "
              "models with batch norm"},
     .check = [](absl::string_view text) { return ParseRate(text).status(); }},
    {.name = "run_steps", .member = &S::run_steps, .range = kCountOrNone, .floating_only = true},
    {.name = "milestones",
     .member = &S::milestones,
     .range = kCount,
     .always_stored = true,
     .floating_only = true,
     .flag = {"milestones", SettingGroup::kTraining,
              "epochs at whose start --milestone-factor multiplies the rate, or up to four shares "
              "of the run with %, as 50%,75%: as --rate multi_step:0.5,0.75",
              "60,120", "the model's"}},
    {.name = "milestone_factor",
     .member = &S::milestone_factor,
     .range = kRate,
     .always_stored = true,
     .floating_only = true,
     .flag = {"milestone-factor", SettingGroup::kTraining, "factor of the rate at each milestone",
              "0.2", "the model's"}},
    {.name = "warm_up_steps",
     .member = &S::warm_up_steps,
     .range = kCountOrNone,
     .floating_only = true,
     .flag = {"warm-up-steps", SettingGroup::kTraining,
              "warm-up of N steps: step i has i/N of the learning rate; 0: no warm-up", "100"}},
    {.name = "look_ahead",
     .member = &S::look_ahead,
     .range = kShare,
     .flag = {"look-ahead", SettingGroup::kStaleness,
              "share a of the predicted way to a forward's own update: the forward uses w - a * "
              "(steps until its update) * rate * velocity; 0: the newest weights",
              "0.5", "0, at stages with raised caps 0.5"}},
    {.name = "raised_look_ahead",
     .member = &S::raised_look_ahead,
     .range = kShare,
     .initially = &S::look_ahead},
    {.name = "aggregate_every",
     .member = &S::aggregate_every,
     .range = kCountOrNone,
     .flag = {"aggregate-every", SettingGroup::kStaleness,
              "steps between averages of a stage's weight versions (FTPipeHD); 0: never", "100"}},
    {.name = "stale_rate_steps",
     .member = &S::stale_rate_steps,
     .range = kCountOrNone,
     .floating_only = true,
     .flag =
         {"stale-rate-steps", SettingGroup::kStaleness,
          "a stage with raised caps, whose gradients are S steps old, starts at 1/S of the rate "
          "and reaches the full rate after this many steps; 0: full rate from the start",
          "300", "half of the run's steps"}},
    {.name = "augment",
     .member = &S::augment,
     .flag = {"augment", SettingGroup::kData,
              "random changes of training samples: on, off, or a list of crop (by up to 4 pixels), "
              "flip (left and right), shift (a signal by up to 8 points), erase (a rectangle) and "
              "mixup (with another sample and its label)",
              "crop,flip", "the data set's"}},
    {.name = "gradient_bits", .member = &S::gradient_bits},
    {.name = "rescale",
     .member = &S::rescale,
     .flag =
         {"rescale", SettingGroup::kIntegers,
          "when the sums of a product get a new scale. dynamic: in each micro-batch; speculate: "
          "the same bytes, sums are not written; adaptive[:WARM_UP[,PERIOD]]: after WARM_UP (100) "
          "micro-batches at least once in PERIOD (64); static[:WARM_UP]: never after WARM_UP",
          "adaptive"},
     .check = [](absl::string_view text) { return ParseRescale(text).status(); }},
    {.name = "batch_split",
     .member = &S::batch_split,
     .flag = {"batch-split", SettingGroup::kIntegers,
              "samples in one product. off: the whole micro-batch; auto: the fastest number, by "
              "worker; N; shifted:N: weight-gradients of N samples, each rounded to 8 bits before "
              "they are added",
              "16"},
     .check = [](absl::string_view text) { return ParseBatchSplit(text).status(); }},
    {.name = "loss_scale",
     .member = &S::loss_scale,
     .flag = {"loss-scale", SettingGroup::kTraining,
              "factor of the loss's gradient in recipes fp16 and fp8_chunk, which updates undo: a "
              "power of two, or "
              "auto: 1024 at first, halved at a barrier if gradients were beyond f16's range, "
              "doubled after 20 barriers without (fp8_chunk: 1024)",
              "4096"},
     .check = CheckLossScaleSetting},
    {.name = "precision",
     .member = &S::precision,
     .flag =
         {"precision", SettingGroup::kTraining,
          "bits of recipes with grids (dorefa, sbm), of weights and activations / of gradients. "
          "recipe: those of its name; fixed:8/8; pfq:3,4,6,8/6,6,8,8[@EPS,ALPHA,EVERY[,LATEST]]: "
          "the next ones when the training loss moves less than EPS (0.05, each time times ALPHA, "
          "0.3) in five times EVERY steps (--barrier-every), and the last ones after a share of "
          "LATEST of the run (none); cpt:3,8/8: up and down in 32 "
          "cycles; at:0:3/6,10:8/8: from epochs on",
          "pfq:3,4,6,8/6,6,8,8"},
     .check = CheckPrecisionSetting},
    {.name = "cost_target",
     .member = &S::cost_target,
     .flag =
         {"cost-target", SettingGroup::kTraining,
          "cost of the blocks behind gates that learn, in % of FP32, which the sign of their "
          "price keeps (FracTrain). Of several, TARGET,...[@EPS,ALPHA,EVERY[,LATEST]], the next "
          "one comes as the next bits of --precision pfq do; off: the price alone",
          "1.5,2,2.5,3"},
     .check = CheckCostTargetSetting},
};

// The value of a record that does not have the field.
template <typename T>
T InitialValue(const TrainingField& field, const TrainingSettings& settings, T S::*member) {
  if constexpr (std::is_same_v<T, double>) {
    if (field.initially != nullptr) return settings.*field.initially;
  }
  return TrainingSettings().*member;
}

absl::Status CheckMember(const TrainingField&, const std::vector<GradientBitsStep>& steps) {
  return CheckGradientBits(steps);
}
absl::Status CheckMember(const TrainingField& field, const std::string& value) {
  return field.check == nullptr ? CheckSetting(field.range, value) : field.check(value);
}
template <typename T>
absl::Status CheckMember(const TrainingField& field, const T& value) {
  return CheckSetting(field.range, value);
}

void LeaveOut(std::vector<GradientBitsStep>& steps) { steps.clear(); }
template <typename T>
void LeaveOut(T& value) {
  value = static_cast<T>(-1);
}
void LeaveOut(std::vector<int64_t>& values) { values = {-1}; }
void LeaveOut(std::string& value) { value.clear(); }

}  // namespace

absl::Span<const TrainingField> TrainingFields() { return kFields; }

const TrainingField* FindTrainingField(absl::string_view name) {
  for (const TrainingField& field : kFields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

TrainingSettings TrainingWithoutFlags() {
  TrainingSettings settings;
  for (const TrainingField& field : kFields) {
    if (field.flag.fallback.empty()) continue;
    std::visit([&](auto member) { LeaveOut(settings.*member); }, field.member);
  }
  return settings;
}

bool IsStored(const TrainingField& field, const TrainingSettings& settings) {
  if (field.always_stored) return true;
  return std::visit(
      [&](auto member) { return !(settings.*member == InitialValue(field, settings, member)); },
      field.member);
}

absl::Status SetMissing(const TrainingField& field, TrainingSettings& settings) {
  if (field.always_stored) {
    return absl::InvalidArgumentError(absl::StrCat(field.name, ": is missing"));
  }
  std::visit([&](auto member) { settings.*member = InitialValue(field, settings, member); },
             field.member);
  return absl::OkStatus();
}

absl::Status CheckTraining(const TrainingSettings& settings) {
  for (const TrainingField& field : kFields) {
    const absl::Status status =
        std::visit([&](auto member) { return CheckMember(field, settings.*member); }, field.member);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(field.name, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel
