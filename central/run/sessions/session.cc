#include "central/run/sessions/session.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/data/class_filter.h"
#include "central/data/latents/replay_draws.h"
#include "central/records/weights_digest.h"
#include "central/run/sessions/head_classes.h"
#include "central/run/trained_weights.h"
#include "partition/import/model_json.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

// A session's files.
struct Files {
  explicit Files(const fs::path& folder)
      : folder(folder),
        latents(folder / "session.latents"),
        model(folder / "tail.json"),
        start(folder / "start"),
        run(folder / "run"),
        journal(folder / "run.journal"),
        figures(folder / "figures.json") {}

  std::string folder;
  std::string latents;
  std::string model;
  std::string start;    // folder: the whole model before, its head prepared
  std::string run;      // folder: check-points of the run
  std::string journal;  // of the run
  std::string figures;  // written last
};

std::vector<int32_t> ListOf(const std::vector<bool>& classes) {
  std::vector<int32_t> list;
  for (size_t i = 0; i < classes.size(); ++i) {
    if (classes[i]) list.push_back(static_cast<int32_t>(i));
  }
  return list;
}

std::vector<bool> UnionOf(std::vector<bool> a, const std::vector<bool>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] || b[i];
  return a;
}

std::vector<int32_t> LabelsOf(const Dataset& data) {
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < data.size(); ++i) labels.push_back(data.label(i));
  return labels;
}

// Samples that went through the front.
struct FrontPasses {
  int64_t new_images = 0;
  int64_t filled = 0;  // of the memory, where there was none
};

// New latents first, then all of the memory, which is filled where there is none.
absl::StatusOr<LatentSet> GatherLatents(const LearnPlan& plan, const LearnArguments& arguments,
                                        const std::vector<bool>& new_classes, int64_t number,
                                        Learner& learner, FrontPasses& passes) {
  const Dataset& train = *plan.run.data.train;
  const std::vector<int32_t> labels = LabelsOf(train);
  const uint64_t seed = plan.tail_settings.training.seed;
  LatentSet set(plan.type, plan.tail.input, plan.tail.classes);
  Front front(plan.whole, plan.layer);
  RUNNEL_RETURN_IF_ERROR(front.AddLatents(
      train,
      DrawByClass(labels, ListOf(new_classes), arguments.samples, seed, ReplayDraw::kNew, number),
      set));
  passes.new_images = front.samples();
  set.new_samples = set.size();
  // Without new images the order is that of any other run.
  set.session = set.new_samples > 0 ? number : 0;
  if (arguments.replay == 0) return set;
  if (!learner.memory.has_value()) {
    const std::vector<int32_t> old = ListOf(learner.seen);
    learner.memory.emplace(plan.type, plan.tail.input, plan.tail.classes);
    Front filler(plan.whole, plan.layer);
    RUNNEL_RETURN_IF_ERROR(
        filler.AddLatents(train,
                          DrawByClass(labels, old, arguments.replay / std::ssize(old), seed,
                                      ReplayDraw::kFill, number),
                          *learner.memory));
    passes.filled = filler.samples();
  }
  std::vector<int64_t> all(static_cast<size_t>(learner.memory->size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  set.AddFrom(*learner.memory, all);
  return set;
}

// The memory behind a session: of all that it was trained on, balanced.
LatentSet KeepBalanced(const LatentSet& session, const std::vector<bool>& seen, int64_t replay,
                       uint64_t seed, int64_t number) {
  const std::vector<int32_t> classes = ListOf(seen);
  LatentSet memory(&session.type(), session.shape(), session.classes());
  memory.AddFrom(session, DrawByClass(session.labels(), classes, replay / std::ssize(classes), seed,
                                      ReplayDraw::kKeep, number));
  return memory;
}

RunSettings SettingsOf(const LearnPlan& plan, const Files& files) {
  RunSettings settings = plan.tail_settings;
  settings.model = absl::StrCat("json:", files.model);
  settings.dataset = absl::StrCat("latents:", files.latents);
  settings.data_dir.clear();
  settings.init_from = absl::StrCat(files.start, "/final.runnel");
  settings.checkpoint_dir = files.run;
  settings.journal = files.journal;
  return settings;
}

// Trains, or goes on where an earlier call was ended. The end's check-point.
absl::StatusOr<Checkpoint> Train(const LearnPlan& plan, const Files& files,
                                 const CommandContext& context) {
  const RunSettings settings = SettingsOf(plan, files);
  if (!LatestCheckpoint(files.run).ok()) {
    std::error_code ignored;
    fs::remove(files.journal, ignored);
    RUNNEL_RETURN_IF_ERROR(TrainCommand(settings, context));
    return NewestWeights(files.run, context.logger);
  }
  RUNNEL_ASSIGN_OR_RETURN(const LoadedRun run, SetUpAndLoad(settings, context.logger));
  RUNNEL_ASSIGN_OR_RETURN(Checkpoint newest, NewestWeights(files.run, context.logger));
  if (newest.step >= run.setup.stop_step) return newest;
  ResumeArguments resume;
  resume.checkpoint_dir = files.run;
  resume.local_workers = settings.local_workers;
  resume.workers = settings.workers;
  resume.listen = settings.listen;
  resume.metrics_port = settings.metrics_port.value_or(-1);
  RUNNEL_RETURN_IF_ERROR(ResumeCommand(resume, context));
  return NewestWeights(files.run, context.logger);
}

// The tail's layers in place of the whole model's.
absl::Status MergeTail(const LearnPlan& plan, Checkpoint tail, const std::vector<bool>& seen,
                       Checkpoint& whole) {
  for (LayerState& layer : tail.state.layers) {
    layer.layer += plan.layer;
    whole.state.layers[static_cast<size_t>(layer.layer)] = std::move(layer);
  }
  whole.state.encoders.clear();
  whole.step += tail.step;
  whole.resumable = false;
  whole.settings.classes = ClassesText(seen);
  whole.settings.checkpoint_dir = plan.folder;
  whole.settings.journal.clear();
  whole.settings.summary.clear();
  whole.journal.clear();
  return CheckState(whole.state, whole.model, 0, whole.model.layer_count() - 1,
                    plan.run.setup.format, ZeroTensors::kWhole);
}

std::vector<int64_t> SamplesOf(const std::vector<ClassTally>& tallies) {
  std::vector<int64_t> counts;
  for (const ClassTally& tally : tallies) counts.push_back(tally.samples);
  return counts;
}
std::vector<int64_t> CorrectOf(const std::vector<ClassTally>& tallies) {
  std::vector<int64_t> counts;
  for (const ClassTally& tally : tallies) counts.push_back(tally.correct);
  return counts;
}

// Mean over the classes seen before of what they have lost since they were best.
double Forgetting(const Learner& learner, const std::vector<bool>& old) {
  double sum = 0, count = 0;
  for (size_t i = 0; i < old.size(); ++i) {
    const ClassTally& tally = learner.tallies[i];
    if (!old[i] || tally.samples == 0) continue;
    sum +=
        learner.best[i] - static_cast<double>(tally.correct) / static_cast<double>(tally.samples);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

void NoteBest(Learner& learner) {
  learner.best.resize(learner.tallies.size());
  for (size_t i = 0; i < learner.tallies.size(); ++i) {
    const ClassTally& tally = learner.tallies[i];
    if (tally.samples > 0)
      learner.best[i] = std::max(
          learner.best[i], static_cast<double>(tally.correct) / static_cast<double>(tally.samples));
  }
}

// What a session left, for a call that goes on behind it.
absl::StatusOr<Json> ReadDone(const Files& files, const std::vector<bool>& new_classes,
                              Learner& learner, const CommandContext& context) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(files.figures, int64_t{1} << 24));
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  JsonObject object(json, files.figures);
  const auto read = [&](const char* samples_key, const char* correct_key) {
    std::vector<int64_t> samples, correct;
    object.Read(samples_key, samples).Read(correct_key, correct);
    learner.tallies.assign(learner.seen.size(), {});
    const size_t count = std::min({samples.size(), correct.size(), learner.seen.size()});
    for (size_t i = 0; i < count; ++i) learner.tallies[i] = {samples[i], correct[i]};
    NoteBest(learner);
  };
  read("samples_before", "correct_before");
  read("samples_by_class", "correct_by_class");
  for (const auto& [key, value] : json.items()) object.Find(key);  // the others are for people
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  RUNNEL_ASSIGN_OR_RETURN(learner.whole, NewestWeights(files.folder, context.logger));
  learner.seen = UnionOf(learner.seen, new_classes);
  std::error_code ignored;
  if (fs::exists(MemoryFile(files.folder), ignored)) {
    RUNNEL_ASSIGN_OR_RETURN(learner.memory, ReadLatents(MemoryFile(files.folder)));
  }
  return json;
}

void PrintBegin(const LatentSet& set, const LearnPlan& plan, const std::vector<bool>& new_classes,
                int64_t number, const CommandContext& context) {
  const std::string names = ClassesText(new_classes);
  context.print(
      absl::StrFormat("session %d: %s%d new images, %d latents replayed (%s, %d bytes each), "
                      "layers from %d (%s) on "
                      "train",
                      number, names.empty() ? "" : absl::StrCat("classes ", names, ", "),
                      set.new_samples, set.size() - set.new_samples, plan.type->name,
                      set.bytes_each(), plan.layer, plan.tail.layers.front().name));
}

// What the session trained on, and the start of its run; the same bytes whenever it is called.
absl::StatusOr<LatentSet> Prepare(const LearnPlan& plan, const LearnArguments& arguments,
                                  const std::vector<bool>& new_classes, int64_t number,
                                  const Files& files, Learner& learner, FrontPasses& passes) {
  std::error_code ignored;
  fs::create_directories(files.folder, ignored);
  RUNNEL_ASSIGN_OR_RETURN(LatentSet set,
                          GatherLatents(plan, arguments, new_classes, number, learner, passes));
  RUNNEL_RETURN_IF_ERROR(WriteLatents(set, files.latents));
  RUNNEL_RETURN_IF_ERROR(WriteFileAtomically(files.model, {ModelToJson(plan.tail)}));
  Checkpoint start = learner.whole;
  start.resumable = false;
  RUNNEL_RETURN_IF_ERROR(
      OpenClasses(start.model, learner.seen, UnionOf(learner.seen, new_classes), start.state));
  RUNNEL_RETURN_IF_ERROR(WriteCheckpoint(start, files.start).status());
  return set;
}

}  // namespace

double AccuracyOf(const std::vector<ClassTally>& tallies, const std::vector<bool>& classes) {
  int64_t samples = 0, correct = 0;
  for (size_t i = 0; i < tallies.size(); ++i) {
    if (!classes[i]) continue;
    samples += tallies[i].samples;
    correct += tallies[i].correct;
  }
  return samples == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(samples);
}

absl::StatusOr<Json> RunSession(const LearnPlan& plan, const LearnArguments& arguments,
                                const std::vector<bool>& new_classes, int64_t number,
                                Learner& learner, const CommandContext& context) {
  const Files files(fs::path(plan.folder) / absl::StrCat("session-", number));
  std::error_code ignored;
  if (fs::exists(files.figures, ignored)) return ReadDone(files, new_classes, learner, context);
  const Dataset& test = *plan.run.data.test;
  if (learner.tallies.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(learner.tallies, EvaluateClasses(learner.whole, test, learner.seen));
  }
  NoteBest(learner);
  const std::vector<ClassTally> before = learner.tallies;
  const std::vector<bool> old = learner.seen;
  FrontPasses passes;
  RUNNEL_ASSIGN_OR_RETURN(const LatentSet set,
                          Prepare(plan, arguments, new_classes, number, files, learner, passes));
  PrintBegin(set, plan, new_classes, number, context);
  RUNNEL_ASSIGN_OR_RETURN(Checkpoint tail, Train(plan, files, context));
  const int64_t steps = tail.step;
  learner.seen = UnionOf(old, new_classes);
  RUNNEL_RETURN_IF_ERROR(MergeTail(plan, std::move(tail), learner.seen, learner.whole));
  RUNNEL_ASSIGN_OR_RETURN(learner.tallies, EvaluateClasses(learner.whole, test, learner.seen));
  if (arguments.replay > 0) {
    learner.memory =
        KeepBalanced(set, learner.seen, arguments.replay, plan.tail_settings.training.seed, number);
    RUNNEL_RETURN_IF_ERROR(WriteLatents(*learner.memory, MemoryFile(files.folder)));
  }
  RUNNEL_RETURN_IF_ERROR(WriteCheckpoint(learner.whole, files.folder).status());
  const Json json = {{"session", number},
                     {"classes", ClassesText(new_classes)},
                     {"new_accuracy", AccuracyOf(learner.tallies, new_classes)},
                     {"old_before", AccuracyOf(before, old)},
                     {"old_accuracy", AccuracyOf(learner.tallies, old)},
                     {"accuracy", AccuracyOf(learner.tallies, learner.seen)},
                     {"forgetting", Forgetting(learner, old)},
                     {"front_samples", passes.new_images},
                     {"filled_samples", passes.filled},
                     {"replayed", set.size() - set.new_samples},
                     {"latent_bytes", learner.memory.has_value() ? learner.memory->bytes() : 0},
                     {"bytes_each", set.bytes_each()},
                     {"steps", steps},
                     {"tail_samples", plan.tail_settings.epochs * set.size()},
                     {"weights_sha256", WeightsSha256(learner.whole.state)},
                     {"samples_before", SamplesOf(before)},
                     {"correct_before", CorrectOf(before)},
                     {"samples_by_class", SamplesOf(learner.tallies)},
                     {"correct_by_class", CorrectOf(learner.tallies)}};
  RUNNEL_RETURN_IF_ERROR(WriteFileAtomically(files.figures, {absl::StrCat(DumpJson(json), "\n")}));
  return json;
}

}  // namespace runnel
