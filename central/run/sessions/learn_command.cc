#include "central/run/sessions/learn_command.h"

#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/data/class_filter.h"
#include "central/records/weights_digest.h"
#include "central/run/sessions/latent_layer.h"
#include "central/run/sessions/learn_plan.h"
#include "central/run/sessions/session.h"
#include "central/run/trained_weights.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

namespace fs = std::filesystem;

// All that the bytes of sessions depend on beside the data.
Json RecordOf(const LearnPlan& plan, const LearnArguments& arguments) {
  const TrainingSettings& training = plan.tail_settings.training;
  return {{"weights_sha256", WeightsSha256(plan.whole.state)},
          {"layer", plan.layer},
          {"classes", arguments.classes},
          {"samples", arguments.samples},
          {"replay", arguments.replay},
          {"latents", plan.type->name},
          {"sessions", arguments.sessions},
          {"epochs", plan.tail_settings.epochs},
          {"seed", training.seed},
          {"lr", training.learning_rate},
          {"rate", training.rate},
          {"momentum", training.momentum},
          {"weight-decay", training.weight_decay},
          {"batch-size", training.batch_size},
          {"micro-batches", training.micro_batches}};
}

// A folder belongs to one call, which may be made again after it was ended.
absl::Status ClaimFolder(const LearnPlan& plan, const Json& record) {
  const std::string path = fs::path(plan.folder) / "learn.json";
  const std::string text = absl::StrCat(DumpJson(record), "\n");
  const auto refused = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--checkpoint-dir ", plan.folder, ": ", what, "; give another folder"));
  };
  std::error_code error;
  if (fs::exists(path, error)) {
    RUNNEL_ASSIGN_OR_RETURN(const std::string there, ReadWholeFile(path, int64_t{1} << 20));
    return there == text ? absl::OkStatus() : refused("holds sessions with other flags");
  }
  if (fs::exists(fs::path(plan.folder) / "final.runnel", error) ||
      LatestCheckpoint(plan.folder).ok())
    return refused("holds check-points of a run");
  fs::create_directories(plan.folder, error);
  return WriteFileAtomically(path, {text});
}

// Percent, with the classes that it is of.
std::string AccuracyText(const std::string& classes, double accuracy) {
  return absl::StrFormat("%s %.2f %%", classes, accuracy * 100);
}

void PrintSession(const Json& session, const std::vector<bool>& old,
                  const CommandContext& context) {
  const auto number = [&](const char* key) { return session[key].get<double>(); };
  const auto classes = session["classes"].get<std::string>();
  std::string text = absl::StrCat("session ", session["session"].get<int64_t>(), ": ");
  if (!classes.empty())
    absl::StrAppend(&text, "new ", AccuracyText(classes, number("new_accuracy")), ", ");
  absl::StrAppend(&text, "old ", AccuracyText(ClassesText(old), number("old_accuracy")),
                  absl::StrFormat(" (before %.2f %%), all %.2f %%; ", number("old_before") * 100,
                                  number("accuracy") * 100),
                  session["front_samples"].get<int64_t>(), " passes of the front, ",
                  session["tail_samples"].get<int64_t>(), " of the layers behind, memory ",
                  session["latent_bytes"].get<int64_t>(), " bytes");
  context.print(text);
}

absl::Status WriteResult(const LearnPlan& plan, const Learner& learner, const Json& record,
                         const std::vector<Json>& sessions, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  Json json = {{"accuracy", AccuracyOf(learner.tallies, learner.seen)},
               {"model", plan.whole.model.name},
               {"dataset", plan.run.setup.settings.dataset},
               {"recipe", plan.tail_settings.recipe},
               {"weights_sha256", WeightsSha256(learner.whole.state)}};
  for (const char* key : {"layer", "latents", "replay", "seed", "epochs", "batch-size"})
    json[key] = record[key];
  json["sessions"] = sessions;
  const std::string text = absl::StrCat(DumpJson(json), "\n");
  if (path == "-") return WriteAll(STDOUT_FILENO, text, "standard output");
  return WriteFileAtomically(path, {text});
}

absl::Status PrintLayers(const LearnArguments& arguments, const CommandContext& context) {
  RUNNEL_ASSIGN_OR_RETURN(const Checkpoint whole, NewestWeights(arguments.from, context.logger));
  RUNNEL_ASSIGN_OR_RETURN(const std::string table, LayerTable(whole.model));
  context.print(table);
  if (arguments.lists_layers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--at: give the layer from which on the model trains, of these");
}

}  // namespace

absl::Status LearnCommand(const LearnArguments& arguments, const CommandContext& context) {
  if (arguments.lists_layers || arguments.at.empty()) return PrintLayers(arguments, context);
  const std::string& summary = arguments.run.summary;
  if (!summary.empty() && summary != "-") RUNNEL_RETURN_IF_ERROR(CheckCanWrite(summary));
  RUNNEL_ASSIGN_OR_RETURN(LearnPlan plan, MakeLearnPlan(arguments, context.logger));
  const Json record = RecordOf(plan, arguments);
  RUNNEL_RETURN_IF_ERROR(ClaimFolder(plan, record));
  Learner learner;
  learner.whole = plan.whole;
  learner.seen = plan.seen;
  learner.memory = std::move(plan.memory);
  std::vector<Json> sessions;
  int64_t number = plan.sessions_before;
  for (const std::vector<bool>& new_classes : plan.new_classes) {
    const std::vector<bool> old = learner.seen;
    RUNNEL_ASSIGN_OR_RETURN(Json session,
                            RunSession(plan, arguments, new_classes, ++number, learner, context));
    PrintSession(session, old, context);
    sessions.push_back(std::move(session));
  }
  RUNNEL_RETURN_IF_ERROR(WriteCheckpoint(learner.whole, plan.folder).status());
  if (learner.memory.has_value())
    RUNNEL_RETURN_IF_ERROR(WriteLatents(*learner.memory, MemoryFile(plan.folder)));
  RUNNEL_RETURN_IF_ERROR(WriteLearned(plan.folder, plan.layer, number));
  context.print(absl::StrCat("weights ", WeightsSha256(learner.whole.state), " in ", plan.folder));
  return WriteResult(plan, learner, record, sessions, summary);
}

}  // namespace runnel
