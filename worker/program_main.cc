#include "worker/program_main.h"

#include <cstdio>
#include <map>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "kernels/ir/recipe.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "partition/zoo/zoo.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/precision.h"
#include "worker/measure/backend_verdicts.h"
#include "worker/measure/list_program.h"

namespace runnel {

namespace {

absl::StatusOr<std::map<std::string, double>> ParseSwitches(
    const std::vector<std::string>& switch_ms) {
  std::map<std::string, double> seconds;
  for (const std::string& text : switch_ms) {
    const std::vector<std::string> words = absl::StrSplit(text, '=');
    double ms = 0;
    if (words.size() != 2 || !absl::SimpleAtod(words[1], &ms) || !(ms >= 0 && ms <= 1e6)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--switch-ms ", text, ": give PROCESSOR=MS, from 0 to a million, as in hexagon=25"));
    }
    seconds[words[0]] = ms * 1e-3;
  }
  return seconds;
}

}  // namespace

std::shared_ptr<ProgramFlags> AddProgramCommand(CLI::App& app) {
  auto flags = std::make_shared<ProgramFlags>();
  CLI::App* command = app.add_subcommand(
      "program", "List the instructions of a model's training step and the processor of each");
  flags->command = command;
  command
      ->add_option("MODEL", flags->model,
                   absl::StrCat("one of ", absl::StrJoin(ModelNames(), ", ")))
      ->required();
  command->add_option("--recipe", flags->recipe, "training arithmetic")->capture_default_str();
  command
      ->add_option("--gates", flags->gates,
                   "gates before the residual blocks, as `runnel-central train --gates` has them, "
                   "or off")
      ->capture_default_str();
  command
      ->add_option(
          "--processors,--backend", flags->processors,
          absl::StrCat("processors, the host's first, of ", absl::StrJoin(BackendNames(), ", "),
                       "; @RULE behind them places instructions: @alternate, @random:SEED, or "
                       "@INSTRUCTION=PROCESSOR+..., '*' for all"))
      ->capture_default_str();
  command->add_option("--batch-size", flags->batch, "samples of a micro-batch")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->add_option("--threads", flags->threads, "compute threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  command
      ->add_option("--switch-ms", flags->switch_ms,
                   "PROCESSOR=MS,...: time of each switch from the host to that processor or back "
                   "(default: as measured or counted)")
      ->delimiter(',');
  command
      ->add_option("--precision", flags->precision,
                   "bits of a recipe's grids, as `runnel-central train --precision` has them")
      ->capture_default_str();
  command->add_option("--rescale", flags->rescale, "when sums get a new scale, with integers")
      ->capture_default_str();
  command
      ->add_option("--batch-split", flags->batch_split,
                   "samples in one product, with integers: off, auto, N or shifted:N")
      ->capture_default_str();
  command->add_flag("--counted", flags->counted,
                    "measure nothing: costs from nominal rates, the same on every machine");
  command->add_option("--backend-option", flags->backend_options, BackendOptionsHelp())
      ->type_name("BACKEND.NAME=VALUE")
      ->allow_extra_args(false);
  command->footer(R"(
Examples:
  what a step of LeNet in integers is made of
    runnel-worker program lenet --recipe niti)");
  return flags;
}

namespace {

// What products compute with.
std::string ProductsText(const Recipe& recipe) {
  if (recipe.family->is_emulated)
    return absl::StrCat("products: emulated (FP32 on values that ", recipe.name, " has rounded)");
  if (!recipe.grids.empty())
    return "products: of codes where they are int8 or int16 below, else of FP32 (emulated)";
  return absl::StrCat("products: ", Name(recipe.numbers.weight));
}

// With gates, if there are to be some.
absl::StatusOr<ModelSpec> ModelOf(const ProgramFlags& flags) {
  absl::StatusOr<ModelSpec> model = MakeModel(flags.model);
  if (!model.ok() || flags.gates == "off") return model;
  const auto wrong = [&flags](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--gates ", flags.gates, ": ", what));
  };
  if (flags.precision != ProgramFlags().precision)
    return wrong("gates give each sample its bits; leave --precision or --gates out");
  if (ProcessorsOf(flags.processors).size() > 1)
    return wrong("gates choose samples on one processor alone; take --processors cpu");
  model = AddGates(*std::move(model), flags.gates);
  if (!model.ok()) return wrong(model.status().message());
  return model;
}

absl::Status CheckLevels(const std::string& precision, const Recipe& recipe) {
  RUNNEL_ASSIGN_OR_RETURN(const PrecisionSetting setting, ParsePrecision(precision));
  RUNNEL_ASSIGN_OR_RETURN(const RecipeName name, ParseRecipeName(recipe.name));
  return CheckPrecisionOf(setting, name);
}

// What flags say of a training.
absl::StatusOr<TrainingSettings> TrainingOf(const ProgramFlags& flags, const Recipe& recipe) {
  const auto named = [](const char* flag, const std::string& value, const absl::Status& status) {
    return status.ok() ? status
                       : absl::InvalidArgumentError(
                             absl::StrCat("--", flag, " ", value, ": ", status.message()));
  };
  RUNNEL_RETURN_IF_ERROR(named("precision", flags.precision, CheckLevels(flags.precision, recipe)));
  RUNNEL_RETURN_IF_ERROR(named("rescale", flags.rescale, ParseRescale(flags.rescale).status()));
  RUNNEL_RETURN_IF_ERROR(
      named("batch-split", flags.batch_split, ParseBatchSplit(flags.batch_split).status()));
  TrainingSettings training;
  training.precision = flags.precision;
  training.rescale = flags.rescale;
  training.batch_split = flags.batch_split;
  return training;
}

}  // namespace

absl::Status RunProgramCommand(const ProgramFlags& flags, const std::string& state_folder) {
  RUNNEL_ASSIGN_OR_RETURN(ModelSpec model, ModelOf(flags));
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(flags.recipe));
  RUNNEL_ASSIGN_OR_RETURN(const TrainingSettings training, TrainingOf(flags, *recipe));
  MixedOptions options;
  RUNNEL_ASSIGN_OR_RETURN(options.switch_seconds, ParseSwitches(flags.switch_ms));
  options.counts = flags.counted;
  BackendSettings settings = {.threads = flags.threads};
  RUNNEL_ASSIGN_OR_RETURN(settings.options, BackendOptions::FromFlag(flags.backend_options));
  absl::StatusOr<std::unique_ptr<CoScheduler>> processors =
      MakeCoScheduler(flags.processors, settings, std::move(options));
  if (!processors.ok()) {
    return absl::Status(processors.status().code(),
                        absl::StrCat("--processors: ", processors.status().message()));
  }
  const BackendVerdicts verdicts(state_folder);
  for (const std::string& name : ProcessorsOf(flags.processors)) {
    if (flags.counted || !IsLoadedBackend(name)) continue;
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> processor, MakeBackend(name, settings));
    RUNNEL_RETURN_IF_ERROR(verdicts.Admit(*processor));
  }
  const int last = model.layer_count() - 1;
  const std::string products = ProductsText(*recipe);
  RUNNEL_ASSIGN_OR_RETURN(StageArithmetic arithmetic, ArithmeticOf(training, model, *recipe));
  arithmetic.programs.max_batch = flags.batch;
  // A whole model on one device: no micro-batch's forward comes before the backward of another.
  arithmetic.programs.one_in_flight = true;
  RUNNEL_ASSIGN_OR_RETURN(
      const ProgramListing listing,
      ListProgram({std::move(model), {0, last}, std::move(arithmetic), flags.counted},
                  **processors));
  std::printf("%s\n%s", products.c_str(), ToText(listing).c_str());
  return absl::OkStatus();
}

}  // namespace runnel
