#include "worker/tune_main.h"

#include <cstdio>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/backends/backend.h"
#include "kernels/ir/compiler.h"
#include "kernels/ir/recipe.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"
#include "worker/measure/backend_verdicts.h"
#include "worker/tune/stage_tuning.h"

namespace runnel {
namespace {

std::string TimesAsFast(double rule_seconds, double seconds) {
  return seconds > 0 ? absl::StrFormat("%.2f", rule_seconds / seconds) : "-";
}

// Prints the choices for the products of the model's search.
void PrintChoices(const std::vector<TuningChoice>& choices) {
  std::printf("%-74s %4s  %-36s %5s %9s %9s %8s\n", "products", "uses", "tile", "tried",
              "rule (ms)", "tile (ms)", "x faster");
  double by_rule = 0, chosen = 0;
  for (const TuningChoice& choice : choices) {
    if (choice.uses == 0) continue;
    by_rule += choice.uses * choice.rule_seconds;
    chosen += choice.uses * choice.seconds;
    std::printf("%-74s %4d  %-36s %5d %9.3f %9.3f %8s\n", choice.shape_class.c_str(), choice.uses,
                choice.kernel.c_str(), choice.tried, 1e3 * choice.rule_seconds,
                1e3 * choice.seconds, TimesAsFast(choice.rule_seconds, choice.seconds).c_str());
  }
  std::printf("a step's products: %.3f ms by rule, %.3f ms as chosen, %s times as fast\n",
              1e3 * by_rule, 1e3 * chosen, TimesAsFast(by_rule, chosen).c_str());
}

absl::Status TuneModel(const TuneFlags& flags, const std::string& name, Backend& backend) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, MakeModel(name));
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(flags.recipe));
  RUNNEL_ASSIGN_OR_RETURN(
      const CompileOptions options,
      CompileOptionsFor(backend.traits(), *recipe,
                        StagePrograms{.max_batch = flags.batch, .one_in_flight = true}));
  RUNNEL_ASSIGN_OR_RETURN(const Program program, CompileStage(model, 0, model.layer_count() - 1,
                                                              flags.batch, *recipe, options));
  Tuner& tuner = *backend.tuner();
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> specification, MakeBackend("ref", 1));
  tuner.BeginSearch(flags.seconds, /*anew=*/true, specification.get());
  const absl::Status prepared = backend.Prepare(program).status();
  tuner.EndSearch();
  RUNNEL_RETURN_IF_ERROR(prepared);
  std::printf("%s, %s, micro-batches of %d\n", name.c_str(), flags.recipe.c_str(),
              static_cast<int>(flags.batch));
  PrintChoices(tuner.choices());
  return absl::OkStatus();
}

}  // namespace

std::shared_ptr<TuneFlags> AddTuneCommand(CLI::App& app) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* command = app.add_subcommand(
      "tune",
      "Find the fastest kernels of this device for a model's products, and keep the choice in "
      "--state-dir. All choices give the same results");
  flags->command = command;
  command
      ->add_option("MODEL", flags->models,
                   absl::StrCat("some of ", absl::StrJoin(ModelNames(), ", ")))
      ->capture_default_str();
  command->add_option("--backend", flags->backend, "backend to tune: opencl")
      ->capture_default_str();
  command->add_option("--recipe", flags->recipe, "training arithmetic")->capture_default_str();
  command->add_option("--batch-size", flags->batch, "samples of a micro-batch")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--seconds", flags->seconds, "time for each model")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1e5));
  command->add_option("--backend-option", flags->backend_options, BackendOptionsHelp())
      ->type_name("BACKEND.NAME=VALUE")
      ->allow_extra_args(false);
  command->footer(R"(
Examples:
  once, before this device trains VGG-11 on its GPU
    runnel-worker tune vgg11 --seconds 60)");
  return flags;
}

absl::Status RunTuneCommand(const TuneFlags& flags, const std::string& state_folder) {
  BackendSettings settings;
  RUNNEL_ASSIGN_OR_RETURN(settings.options, BackendOptions::FromFlag(flags.backend_options));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          MakeBackend(flags.backend, settings));
  Tuner* tuner = backend->tuner();
  if (tuner == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--backend ", flags.backend, ": has no kernels to choose from; take opencl"));
  }
  RUNNEL_RETURN_IF_ERROR(BackendVerdicts(state_folder).Admit(*backend));
  const TuningStore store(state_folder);
  for (const std::string& complaint : store.Find(tuner->subject()).complaints)
    std::fprintf(stderr, "runnel-worker: %s\n", complaint.c_str());
  tuner->Adopt(store.Find(tuner->subject()).same, /*is_checked=*/true);
  std::printf("%s\n", backend->description().c_str());
  for (const std::string& model : flags.models)
    RUNNEL_RETURN_IF_ERROR(TuneModel(flags, model, *backend));
  RUNNEL_RETURN_IF_ERROR(store.Keep(tuner->subject(), tuner->choices()));
  if (const std::string path = store.PathFor(tuner->subject()); !path.empty())
    std::printf("kept in %s\n", path.c_str());
  return absl::OkStatus();
}

}  // namespace runnel
