#include "central/run/sessions/learn_plan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/data/class_filter.h"
#include "central/run/sessions/head_classes.h"
#include "central/run/sessions/latent_layer.h"
#include "central/run/trained_weights.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/codecs/codec_id.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"
#include "proto/process/host_memory.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

// Paper 001's epochs; batch of AR1*.
constexpr int64_t kEpochs = 8;
constexpr int64_t kBatchSize = 128;
constexpr double kRate = 0.005;
constexpr absl::string_view kFormat = "runnel-learned";

absl::Status Named(const std::string& flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

std::string LearnedFile(const std::string& folder) { return fs::path(folder) / "learned.json"; }

// A synchronous schedule and exact links: the same weights on any number of stages.
RunSettings TailSettings(const LearnArguments& arguments, const Checkpoint& whole,
                         const NumberFormat& format) {
  const auto is_given = [&](const char* name) { return arguments.given.count(name) > 0; };
  RunSettings settings = arguments.run;
  const RunSettings& before = whole.settings;
  settings.recipe = before.recipe;
  settings.schedule = "sync_1f1b";
  settings.bits.clear();
  settings.codec_forward = settings.codec_backward = CodecSchedule(LosslessCodec(format));
  settings.eval_every = -1;  // the whole model is evaluated, on images
  settings.summary.clear();
  settings.checkpoint_dir.clear();
  if (!is_given("backend")) settings.backend = before.backend;
  if (!is_given("worker-threads")) settings.worker_threads = before.worker_threads;
  if (!is_given("epochs")) settings.epochs = kEpochs;
  TrainingSettings& training = settings.training;
  training.optimizer = before.training.optimizer;
  training.loss_scale = before.training.loss_scale;
  training.augment = "off";
  if (!is_given("rate")) training.rate = "constant";
  if (!is_given("seed")) training.seed = before.training.seed;
  if (!is_given("momentum")) training.momentum = before.training.momentum;
  if (!is_given("weight-decay")) training.weight_decay = before.training.weight_decay;
  if (!is_given("lr")) training.learning_rate = kRate;
  if (!is_given("batch-size")) training.batch_size = kBatchSize;
  if (!is_given("micro-batches")) training.micro_batches = 1;
  return settings;
}

// The classes of --classes in `sessions` parts, in ascending order.
absl::StatusOr<std::vector<std::vector<bool>>> SessionsOf(const LearnArguments& arguments,
                                                          const std::vector<bool>& seen,
                                                          absl::string_view model) {
  const auto classes = std::ssize(seen);
  if (arguments.classes.empty()) {
    if (arguments.samples == 0 && arguments.sessions == 1)
      return std::vector<std::vector<bool>>(1, std::vector<bool>(seen.size()));
    return absl::InvalidArgumentError("--classes: give those that are new, as in --classes 9");
  }
  const std::string flag = absl::StrCat("--classes ", arguments.classes);
  const absl::StatusOr<std::vector<bool>> wanted = ParseClasses(arguments.classes, classes);
  if (!wanted.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", wanted.status().message(), ", the outputs of ", model,
                     "; for more begin with train --rewrite head:CLASSES --init-from"));
  }
  std::vector<size_t> list;
  for (size_t i = 0; i < wanted->size(); ++i) {
    if (!(*wanted)[i]) continue;
    if (seen[i]) {
      return absl::InvalidArgumentError(absl::StrCat(flag, ": class ", i, " is not new to --from ",
                                                     arguments.from, ", which has seen ",
                                                     ClassesText(seen)));
    }
    list.push_back(i);
  }
  const auto sessions = static_cast<size_t>(arguments.sessions);
  if (list.size() % sessions != 0) {
    return absl::InvalidArgumentError(absl::StrCat("--sessions ", sessions, ": do not share the ",
                                                   list.size(), " classes of --classes evenly"));
  }
  std::vector<std::vector<bool>> parts(sessions, std::vector<bool>(seen.size()));
  for (size_t i = 0; i < list.size(); ++i) parts[i / (list.size() / sessions)][list[i]] = true;
  return parts;
}

absl::Status CheckSamples(const LearnArguments& arguments, const LearnPlan& plan) {
  std::vector<int64_t> there(plan.seen.size());
  const Dataset& train = *plan.run.data.train;
  for (int64_t i = 0; i < train.size(); ++i) ++there[static_cast<size_t>(train.label(i))];
  for (const std::vector<bool>& session : plan.new_classes) {
    for (size_t i = 0; i < session.size(); ++i) {
      if (!session[i] || there[i] >= arguments.samples) continue;
      return absl::InvalidArgumentError(absl::StrCat("--samples ", arguments.samples, ": class ", i,
                                                     " has ", there[i], " to train on"));
    }
  }
  if (arguments.samples > 0 || arguments.classes.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("--samples 0: gives no image of --classes; leave one out");
}

// Of the memory and of a session's file.
absl::Status CheckMemory(const LearnArguments& arguments, const LearnPlan& plan) {
  const auto count = [](const std::vector<bool>& classes) {
    return static_cast<int64_t>(std::count(classes.begin(), classes.end(), true));
  };
  int64_t all = count(plan.seen);
  int64_t new_images = 0;
  for (const std::vector<bool>& session : plan.new_classes) {
    all += count(session);
    new_images = std::max(new_images, count(session) * arguments.samples);
  }
  const std::string flag = absl::StrCat("--replay ", arguments.replay);
  if (arguments.replay > 0 && arguments.replay < all) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": is less than one of each of ", all, " classes"));
  }
  if (arguments.replay + new_images == 0)
    return absl::InvalidArgumentError(absl::StrCat(flag, ": with --samples 0 nothing is learned"));
  const LatentSet empty(plan.type, plan.tail.input, plan.tail.classes);
  const int64_t kept = std::min(arguments.replay, plan.run.data.train->size());
  const int64_t bytes = (kept + new_images) * empty.bytes_each();
  const int64_t limit =
      std::min(kMaxLatentBytes,
               arguments.memory_mb > 0 ? arguments.memory_mb << 20 : AvailableMemoryBytes() / 4);
  if (bytes <= limit) return absl::OkStatus();
  const int64_t most = limit / empty.bytes_each() - new_images;
  return absl::InvalidArgumentError(absl::StrCat(
      flag, ": with the new images ", bytes, " bytes of latents, the limit is ", limit, "; give ",
      most > 0 ? absl::StrCat("at most ", most) : "fewer --samples",
      ", smaller --latents, or a layer with smaller ones (runnel-central check MODEL)"));
}

// What sessions before have left in --from.
absl::Status ReadMemory(const LearnArguments& arguments, LearnPlan& plan) {
  std::error_code ignored;
  if (!fs::exists(LearnedFile(arguments.from), ignored)) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(LearnedFile(arguments.from), int64_t{1} << 20));
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonObject object(json, LearnedFile(arguments.from));
  int64_t layer = 0;
  object.Format(kFormat, 1).Read("layer", layer).Read("sessions", plan.sessions_before);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  if (!fs::exists(MemoryFile(arguments.from), ignored)) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(plan.memory, ReadLatents(MemoryFile(arguments.from)));
  if (layer == plan.layer && plan.memory->type().name == plan.type->name &&
      plan.memory->shape() == plan.tail.input && plan.memory->classes() == plan.tail.classes)
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--from ", arguments.from, ": its memory has latents of type ", plan.memory->type().name,
      " before layer ", layer, "; give --at ", layer, " --latents ", plan.memory->type().name));
}

absl::Status LoadWhole(const LearnArguments& arguments, Logger* logger, LearnPlan& plan) {
  const std::string flag = absl::StrCat("--from ", arguments.from);
  absl::StatusOr<Checkpoint> whole = NewestWeights(arguments.from, logger);
  if (!whole.ok()) return Named(flag, whole.status());
  plan.whole = *std::move(whole);
  RunSettings settings = WithoutTraining(plan.whole.settings);
  settings.summary.clear();
  settings.classes.clear();
  if (arguments.given.count("data-dir") > 0) settings.data_dir = arguments.run.data_dir;
  plan.whole.settings.data_dir = settings.data_dir;
  RUNNEL_ASSIGN_OR_RETURN(plan.run, SetUpAndLoad(settings, logger));
  RUNNEL_RETURN_IF_ERROR(CheckModel(ModelSha256(plan.whole.model), plan.run.setup, flag));
  const ModelSpec& model = plan.whole.model;
  RUNNEL_ASSIGN_OR_RETURN(const int64_t labels, LabelsPerSample(model));
  if (labels > 1 || model.tokens() > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": its samples are tokens, which are of no class"));
  }
  if (plan.run.setup.format.integer_parameters()) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": was trained with recipe ",
                                                   plan.whole.settings.recipe,
                                                   "; learn takes fp32, bf16 and fp16"));
  }
  const std::string& classes = plan.whole.settings.classes;
  plan.seen = std::vector<bool>(static_cast<size_t>(model.classes), true);
  if (classes.empty()) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(plan.seen, ParseClasses(classes, model.classes));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LearnPlan> MakeLearnPlan(const LearnArguments& arguments, Logger* logger) {
  LearnPlan plan;
  RUNNEL_RETURN_IF_ERROR(LoadWhole(arguments, logger, plan));
  const ModelSpec& model = plan.whole.model;
  const std::string at = absl::StrCat("--at ", arguments.at);
  const absl::StatusOr<int> layer = ParseLatentLayer(arguments.at, model);
  if (!layer.ok()) return Named(at, layer.status());
  plan.layer = *layer;
  absl::StatusOr<ModelSpec> tail = TailOf(model, plan.layer);
  if (!tail.ok()) return Named(at, tail.status());
  plan.tail = *std::move(tail);
  RUNNEL_RETURN_IF_ERROR(Named(absl::StrCat("--from ", arguments.from), CheckHead(model)));
  const absl::StatusOr<const LatentType*> type = FindLatentType(arguments.latents);
  if (!type.ok()) return Named("--latents", type.status());
  plan.type = *type;
  RUNNEL_ASSIGN_OR_RETURN(plan.new_classes, SessionsOf(arguments, plan.seen, model.name));
  RUNNEL_RETURN_IF_ERROR(CheckSamples(arguments, plan));
  RUNNEL_RETURN_IF_ERROR(CheckMemory(arguments, plan));
  RUNNEL_RETURN_IF_ERROR(ReadMemory(arguments, plan));
  plan.tail_settings = TailSettings(arguments, plan.whole, plan.run.setup.format);
  const std::string& folder = arguments.run.checkpoint_dir;
  plan.folder =
      fs::absolute(folder.empty() ? fs::path(arguments.from) / "learned" : fs::path(folder));
  return plan;
}

std::string MemoryFile(const std::string& folder) { return fs::path(folder) / "memory.latents"; }

absl::Status WriteLatents(const LatentSet& set, const std::string& path) {
  return WriteFileAtomically(path, {set.Serialize()});
}

absl::StatusOr<LatentSet> ReadLatents(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(path, 2 * kMaxLatentBytes));
  absl::StatusOr<LatentSet> set = LatentSet::Parse(bytes);
  return set.ok() ? std::move(set) : Named(path, set.status());
}

absl::Status WriteLearned(const std::string& folder, int layer, int64_t sessions) {
  const Json json = {{"format", kFormat}, {"version", 1}, {"layer", layer}, {"sessions", sessions}};
  return WriteFileAtomically(LearnedFile(folder), {absl::StrCat(DumpJson(json), "\n")});
}

}  // namespace runnel
