#include "central/settings/run_fields.h"

#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/base/utf8.h"

namespace runnel {
namespace {

using S = RunSettings;
using Steps = std::vector<GradientBitsStep>;
using Texts = std::vector<std::string>;
constexpr double kMaxWorkers = 1024;
constexpr SettingRange kText = {1};
constexpr SettingRange kAnyText = {0};
constexpr SettingRange kCount = {1, kMaxSettingCount};
constexpr SettingRange kCountOrNone = {0, kMaxSettingCount};

constexpr RunField kFields[] = {
    {{"model", SettingGroup::kData,
      "model to train; json:FILE (see runnel-central show) and onnx:FILE are your own", "har_cnn"},
     &S::model,
     kText},
    {{"rewrite", SettingGroup::kData, "changes the model before training; may be given repeatedly",
      "freeze:0-5"},
     &S::rewrites,
     kAnyText},
    {{"dataset", SettingGroup::kData,
      "data to train on, a known set or your own, which the model then follows", "csv:iris.csv",
      "the model's"},
     &S::dataset,
     kAnyText},
    {{"data-dir", SettingGroup::kData, "folder with the data set's original files", "~/data/mnist"},
     &S::data_dir,
     kAnyText},
    {{"classes", SettingGroup::kData,
      "train and test on samples of these classes alone, numbers and ranges from 0; the model "
      "keeps "
      "its outputs",
      "0-8", "all"},
     &S::classes,
     kAnyText},
    {{"validation-share", SettingGroup::kData,
      "share of the training samples, drawn by the seed, that evaluations, the best check-point "
      "and "
      "--early-stop look at in place of the test set, which is evaluated once, at the end; 0: none",
      "0.1"},
     &S::validation_share,
     {0, 1, true}},
    {{"init-from", SettingGroup::kData,
      "weights to begin with: a folder of check-points, or onnx:FILE; by layer, name and shape, "
      "the rest is drawn",
      "runs/mnist", "drawn; of --model onnx:FILE its own"},
     &S::init_from,
     kAnyText},
    {{"recipe", SettingGroup::kData, "training arithmetic", "niti"}, &S::recipe, kText},

    {{"local-workers", SettingGroup::kMembers,
      "stages on this host; 0: a plain training loop without any pipeline", "3"},
     &S::local_workers,
     {0, kMaxWorkers}},
    {{"workers", SettingGroup::kMembers,
      "workers that dial in, besides the local ones; MIN..MAX: as --workers MAX --at-least MIN",
      "2"},
     &S::workers,
     {0, kMaxWorkers}},
    {{"at-least", SettingGroup::kMembers,
      "training begins some seconds after so many of --workers are there, the others join at "
      "barriers",
      "2", "all"},
     &S::at_least,
     {0, kMaxWorkers}},
    {{"listen", SettingGroup::kMembers,
      "HOST:PORT where workers dial in; beyond loopback after `runnel-central init`, else only "
      "with "
      "--insecure-network",
      "192.168.1.10:7000"},
     &S::listen,
     kText},
    {{"worker-timeout-s", SettingGroup::kMembers, "longest wait for workers to join", "300"},
     &S::worker_timeout_s,
     kCount},

    {{"codec-forward", SettingGroup::kLinks,
      "codec of activations, or a list with first epochs, EPOCH:CODEC,...; recipe: the bits of the "
      "recipe's grids, by the level of --precision",
      "0:mbq:2,60:mbq:3"},
     &S::codec_forward,
     kText},
    {{"codec-backward", SettingGroup::kLinks, "codec of gradients, or such a list", "stochastic:8"},
     &S::codec_backward,
     kText},
    {{"bits", SettingGroup::kLinks,
      "bits by epoch instead of codecs, of mbq and stochastic or of the codecs' families. accept: "
      "AccEPT's schedule for the model. FORWARD/BACKWARD: each BITS or a list with switch epochs. "
      "bandwidth: each direction of each link has the bits with which the plan's charge is least, "
      "period x (1 + noise that codecs add) x (1 + staleness), and no fewer than accept has; from "
      "step 10 on by what was measured, unless --replan off",
      "2,60:3,160:4/8,120:4", "bandwidth with policy runnel, unless a codec is given"},
     &S::bits,
     kAnyText},
    {{"learning-budget", SettingGroup::kLinks,
      "--bits bandwidth takes no codecs that add more than this to the gradients' noise, % of it; "
      "0: none that lose anything",
      "20"},
     &S::learning_budget,
     {0}},

    {{"measure-noise", SettingGroup::kLinks,
      "first step of the measurements of what codecs add to the gradients' noise, by which plans "
      "are "
      "charged; 0: from 200 on, for at most 0.5 % of the run's time; -1: none",
      "100"},
     &S::measure_noise,
     {-1}},

    {{"schedule", SettingGroup::kPlanning, "order of forwards, backwards and steps", "sync_1f1b"},
     &S::schedule,
     kText},
    {{"policy", SettingGroup::kPlanning, "who cuts the model into stages", "accept",
      "runnel; with --quick, or without links, uniform"},
     &S::policy,
     kText},
    {{"replan", SettingGroup::kPlanning,
      "move layers at barriers where that saves time: on, off, or auto (the policy's default). off "
      "also fixes the bits of --bits bandwidth",
      "off"},
     &S::replan,
     kText},
    {{"predictor", SettingGroup::kPlanning,
      "make plans from times that this predicts from ten sub-models a worker, corrected by what "
      "its "
      "stages take, and measure no layers",
      "mixture", "none; with policy accept AccEPT's network"},
     &S::predictor,
     kAnyText},
    {{"predictor-profiles", SettingGroup::kPlanning,
      "with a predictor: folder with the *.profile files of known devices and the networks that "
      "learned from them (runnel-predictor train); '': none are known, times are proportional to "
      "FLOPs",
      "predictor/profiles", "share/runnel/profiles"},
     &S::predictor_profiles,
     kAnyText},
    {{"links", SettingGroup::kPlanning,
      "what links carry: a file with a scenario's \"links\" (see runnel-lab simulate --help; names "
      "of workers, central for those on this host, * for any), of which none is probed. Or a "
      "number "
      "of Mbps: what plans assume of each link, each way, until it is measured; packet headers "
      "included, so that frames get 95.6 % of it",
      "home.json"},
     &S::links,
     kAnyText},
    {{"caps", SettingGroup::kPlanning, "largest number of micro-batches in flight, by stage",
      "5,3,1", "the schedule's"},
     &S::caps,
     kCount},

    {{"epochs", SettingGroup::kTraining, "passes over the training set", "10", "the model's"},
     &S::epochs,
     kCount},
    {{"max-batches", SettingGroup::kTraining,
      "stop after this many optimizer steps from the run's start; 0: after all epochs", "500"},
     &S::max_batches,
     kCountOrNone},
    {{"recompute", SettingGroup::kTraining,
      "layers whose inner values the backward makes again from the layer's input, in place of "
      "keeping them: less memory, the time of a second forward. The first N, or A-B; auto: those "
      "of "
      "stages that would not fit their worker's memory, and of plans that are faster for it; off",
      "0-5", "off"},
     &S::recompute,
     kAnyText},
    {{"stash", SettingGroup::kTraining,
      "number type of the activations that are kept for the backward: bf16, fp16, e4m3 or e5m2. "
      "Less "
      "memory; gradients are computed from the rounded values. off: as the recipe has them",
      "bf16", "off"},
     &S::stash,
     kAnyText},
    {{"gates", SettingGroup::kTraining,
      "a gate before each residual block, by which samples skip it or compute it in few bits: "
      "ff:FW,.../BW,...[@beta:PRICE], the bits of weights and activations and those of gradients "
      "of "
      "each option, 0 to skip, 32 for the recipe's own. The gate learns, by the loss and by the "
      "price of a sample that computes a block in FP32; lstm in place of ff: it also knows what "
      "the gates in front have seen; with @hold:SHARE a drawn share skips; off",
      "ff:0,32/32,32", "off"},
     &S::gates,
     kAnyText},
    {{"eval-every", SettingGroup::kTraining,
      "epochs between evaluations; 0: only at the end, -1: never (no accuracy)", "5"},
     &S::eval_every,
     {-1, kMaxSettingCount}},
    {{"eval-cost-percent", SettingGroup::kTraining,
      "largest share of training time that evaluation may cost (transfer of weights and shared "
      "processor), %; costlier evaluations wait for a later epoch; 0: no limit",
      "5"},
     &S::eval_cost_percent,
     {0, 100}},
    {{"early-stop", SettingGroup::kTraining,
      "end at the barrier behind so many evaluations in a row without a new best accuracy (of "
      "models of tokens without a new least loss); 0: never",
      "5"},
     &S::early_stop,
     kCountOrNone},

    {{"gradient-bits", SettingGroup::kIntegers,
      "bits that an update keeps of a gradient: BITS or CONV/LINEAR; by epoch EPOCH:BITS,...; or "
      "plateau:BITS[:BARRIERS], one bit less whenever the training loss has not fallen for "
      "BARRIERS (5) barriers",
      "0:3/2,10:1", "2, from 2/5 of the epochs on 1, from 7/10 on 0"},
     &S::gradient_bits,
     kAnyText},

    {{"checkpoint-dir", SettingGroup::kOutput, "folder for check-points, written at each barrier",
      "runs/mnist"},
     &S::checkpoint_dir,
     kAnyText},
    {{"journal", SettingGroup::kOutput,
      "file for the record of all decisions; replay trains from it", "runs/mnist.journal"},
     &S::journal,
     kAnyText},
    {{"log", SettingGroup::kOutput,
      "file for loss, rate, speed and accuracy by step, .csv or .jsonl: a row at each barrier and "
      "evaluation; resume goes on in it",
      "runs/mnist.csv"},
     &S::log,
     kAnyText},
    {{"tensorboard", SettingGroup::kOutput,
      "folder for an event file of TensorBoard with the figures of --log", "runs/mnist"},
     &S::tensorboard,
     kAnyText},
    {{"summary", SettingGroup::kOutput, "JSON file with the result; -: standard output", "-"},
     &S::summary,
     kAnyText},
    {{"report", SettingGroup::kOutput,
      "HTML file for the page as it is at the end, which needs no central and no network",
      "run.html"},
     &S::report,
     kAnyText},
    {{"metrics-port", SettingGroup::kOutput, "port for the page, /metrics and /healthz; 0: any",
      "9100", "no page"},
     &S::metrics_port,
     {0, 65535}},
    {{"linger-s", SettingGroup::kOutput,
      "seconds for which the page stays after the run, while a browser shows it", "600"},
     &S::linger_s,
     {0, kMaxSettingCount}},

    {{"backend", SettingGroup::kAdvanced,
      "backend of the workers, by name; auto: the best of each worker", "ref"},
     &S::backend,
     kText},
    {{"backend-option", SettingGroup::kAdvanced, "of local workers:", "opencl.weights=fp16"},
     &S::backend_options,
     kAnyText},
    {{"worker-threads", SettingGroup::kAdvanced, "compute threads of a local worker", "2"},
     &S::worker_threads,
     {1, kMaxWorkers}},
    {{"barrier-every", SettingGroup::kAdvanced,
      "optimizer steps between barriers, where check-points are made and plans change; auto: by "
      "what "
      "a barrier takes and how often workers are lost",
      "50", "", "auto"},
     &S::barrier_every,
     {0, kMaxSettingCount}},
    {{"replicate-every", SettingGroup::kAdvanced,
      "barriers between copies of each stage's state to a neighbour; a lost worker costs the steps "
      "since the last copy. 0: as often as at most 1.6 % of the time allows, -1: never",
      "2"},
     &S::replicate_every,
     {-1, kMaxSettingCount}},
    {{"link-mbps", SettingGroup::kAdvanced,
      "rate to which each link is throttled, each way; 0: no limit", "4"},
     &S::link_mbps,
     {0}},
    {{"link-delay-ms", SettingGroup::kAdvanced, "delay added to each link, each way", "10"},
     &S::link_delay_ms,
     {0}},
};

absl::Status Parse(absl::string_view text, std::string& value) {
  value = std::string(text);
  return absl::OkStatus();
}

absl::Status Parse(absl::string_view text, int64_t& value) {
  if (absl::SimpleAtoi(text, &value)) return absl::OkStatus();
  return absl::InvalidArgumentError("must be an integer");
}

absl::Status Parse(absl::string_view text, std::optional<int64_t>& value) {
  return Parse(text, value.emplace());
}

absl::Status Parse(absl::string_view text, uint64_t& value) {
  if (absl::SimpleAtoi(text, &value)) return absl::OkStatus();
  return absl::InvalidArgumentError("must be an integer of at least 0");
}

absl::Status Parse(absl::string_view text, double& value) {
  if (absl::SimpleAtod(text, &value)) return absl::OkStatus();
  return absl::InvalidArgumentError("must be a number");
}

absl::Status Parse(absl::string_view text, std::vector<int64_t>& values) {
  values.clear();
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    if (!absl::SimpleAtoi(part, &values.emplace_back())) {
      return absl::InvalidArgumentError("must be integers with commas between them");
    }
  }
  return absl::OkStatus();
}

absl::Status Parse(absl::string_view text, Texts& texts) {
  texts = absl::StrSplit(text, ',', absl::SkipWhitespace());
  return absl::OkStatus();
}

absl::Status Parse(absl::string_view text, CodecSchedule& codecs) {
  RUNNEL_ASSIGN_OR_RETURN(codecs, CodecSchedule::Parse(text));
  return absl::OkStatus();
}

absl::Status Parse(absl::string_view text, BackendOptions& options) {
  RUNNEL_ASSIGN_OR_RETURN(options, BackendOptions::Parse(text));
  return absl::OkStatus();
}

absl::Status Parse(absl::string_view text, Steps& steps) {
  RUNNEL_ASSIGN_OR_RETURN(steps, ParseGradientBits(text));
  return absl::OkStatus();
}

std::string Text(const std::string& value) { return value; }
std::string Text(const std::optional<int64_t>& value) {
  return value.has_value() ? absl::StrCat(*value) : "";
}
std::string Text(const std::vector<int64_t>& values) { return absl::StrJoin(values, ","); }
std::string Text(const Texts& texts) { return absl::StrJoin(texts, ","); }
std::string Text(const CodecSchedule& codecs) { return codecs.text(); }
std::string Text(const BackendOptions& options) { return options.text(); }
std::string Text(const Steps& steps) { return GradientBitsText(steps); }
template <typename T>
std::string Text(const T& value) {
  return absl::StrCat(value);
}

absl::Status CheckValue(const SettingRange& range, const std::optional<int64_t>& value) {
  return value.has_value() ? CheckSetting(range, *value) : absl::OkStatus();
}
absl::Status CheckValue(const SettingRange&, const Steps& steps) {
  return CheckGradientBits(steps);
}
// What the table of rewrites says of them.
absl::Status CheckValue(const SettingRange&, const Texts&) { return absl::OkStatus(); }
// Read from text, which is its check; ResolveCodecs looks its codecs up.
absl::Status CheckValue(const SettingRange&, const CodecSchedule&) { return absl::OkStatus(); }
absl::Status CheckValue(const SettingRange&, const BackendOptions&) { return absl::OkStatus(); }
template <typename T>
absl::Status CheckValue(const SettingRange& range, const T& value) {
  return CheckSetting(range, value);
}

// Lists of steps and caps that are left out are empty, which their ranges allow.
template <typename T>
bool HoldsLeftOut(const T& value) {
  if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) return value == -1;
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) return value == T{-1};
  if constexpr (std::is_same_v<T, std::optional<int64_t>>) return !value.has_value();
  if constexpr (std::is_same_v<T, std::string>) return value.empty();
  return false;
}

// A text as it stands in a message, which must not carry other bytes to a terminal.
std::string Shown(absl::string_view text) {
  if (text.empty()) return "''";
  return IsUtf8(text) ? std::string(text) : absl::CHexEscape(text);
}

absl::Status Wrong(const RunField& field, absl::string_view text, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat("--", field.flag.name, " ", Shown(text), ": ", status.message()));
}

const RunSettings& Untouched() {
  static const RunSettings settings;
  return settings;
}

std::vector<RunField> AllFields() {
  std::vector<RunField> fields(std::begin(kFields), std::end(kFields));
  for (const TrainingField& field : TrainingFields()) {
    if (!field.flag.name.empty()) fields.push_back({field.flag, &field, field.range});
  }
  return fields;
}

}  // namespace

absl::Span<const RunField> RunFields() {
  static const std::vector<RunField> fields = AllFields();
  return fields;
}

bool IsLeftOut(const RunField& field, const RunSettings& settings) {
  return !field.flag.fallback.empty() &&
         VisitSetting(field, settings, [](const auto& value) { return HoldsLeftOut(value); });
}

bool IsGiven(const RunField& field, const RunSettings& settings) {
  return SettingText(field, settings) != SettingText(field, Untouched());
}

std::string SettingText(const RunField& field, const RunSettings& settings) {
  std::string text = VisitSetting(field, settings, [](const auto& value) { return Text(value); });
  return text == "0" && !field.flag.zero.empty() ? std::string(field.flag.zero) : text;
}

absl::Status SetFromText(const RunField& field, absl::string_view text, RunSettings& settings) {
  const absl::Status status = VisitSetting(field, settings, [&](auto& value) {
    if (text == "0" && !field.flag.zero.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("must be at least 1, or ", field.flag.zero));
    }
    const bool is_zero = !text.empty() && text == field.flag.zero;
    const absl::Status parsed = Parse(is_zero ? "0" : text, value);
    if (!parsed.ok() && !field.flag.zero.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(parsed.message(), ", or ", field.flag.zero));
    }
    return parsed.ok() ? CheckValue(field.range, value) : parsed;
  });
  return Wrong(field, text, status);
}

absl::string_view ValueName(const RunField& field) {
  return VisitSetting(field, Untouched(), [](const auto& value) -> absl::string_view {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, double>) return "NUMBER";
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Steps>) return "TEXT";
    if constexpr (std::is_same_v<T, CodecSchedule>) return "CODECS";
    if constexpr (std::is_same_v<T, BackendOptions>) return "BACKEND.NAME=VALUE";
    if constexpr (std::is_same_v<T, std::vector<int64_t>>) return "N,N,...";
    if constexpr (std::is_same_v<T, Texts>) return "NAME:ARGUMENTS";
    return "N";
  });
}

absl::string_view ListSeparator(const RunField& field) {
  return VisitSetting(field, Untouched(), [](const auto& value) -> absl::string_view {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::vector<int64_t>> || std::is_same_v<T, Texts>) return ",";
    if constexpr (std::is_same_v<T, BackendOptions>) return kBackendOptionSeparator;
    return "";
  });
}

absl::Status CheckField(const RunField& field, const RunSettings& settings) {
  if (IsLeftOut(field, settings)) return absl::OkStatus();
  const auto* training = std::get_if<const TrainingField*>(&field.member);
  const std::string text = SettingText(field, settings);
  absl::Status status = VisitSetting(
      field, settings, [&](const auto& value) { return CheckValue(field.range, value); });
  if (status.ok() && training != nullptr && (*training)->check != nullptr)
    status = (*training)->check(text);
  return Wrong(field, text, status);
}

}  // namespace runnel
