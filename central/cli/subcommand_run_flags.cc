#include "central/cli/subcommand_run_flags.h"

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "central/cli/subcommand.h"
#include "central/data/dataset.h"
#include "compress/codec.h"
#include "partition/policy.h"
#include "partition/schedule.h"
#include "partition/zoo/zoo.h"
#include "proto/base/recipe_family.h"

namespace runnel {
namespace {

// A flag whose value is a list; a configuration file cuts it at its commas.
void AddListFlag(CLI::App& app, const std::string& flag, std::string& value,
                 const std::string& help) {
  app.add_option_function<std::vector<std::string>>(
         flag,
         [&value](const std::vector<std::string>& parts) { value = absl::StrJoin(parts, ","); },
         help)
      ->delimiter(',');
}

// What is trained on what.
void AddDataFlags(CLI::App& app, RunSettings& s) {
  app.add_option("--model", s.model, absl::StrCat("one of ", absl::StrJoin(ModelNames(), ", ")))
      ->capture_default_str();
  app.add_option(
      "--dataset", s.dataset,
      absl::StrCat("one of ", absl::StrJoin(DatasetNames(), ", "), " (default: the model's)"));
  app.add_option("--data-dir", s.data_dir, "folder with the data set's original files");
  AddListFlag(app, "--recipe", s.recipe,
              absl::StrCat("training arithmetic: ", RecipeHelp(), " (default: ", s.recipe, ")"));
  app.add_option("--backend", s.backend, "what computes: auto, or a worker's backend by name")
      ->capture_default_str();
}

// "mbq:2..8, stochastic:4|8, ...".
std::string CodecFamilyTexts() {
  return absl::StrJoin(CodecFamilies(), ", ", [](std::string* out, const CodecFamily& family) {
    absl::StrAppend(out, family.text());
  });
}

// A codec, or codecs from epochs on; a configuration file cuts the list at its commas.
void AddCodecFlag(CLI::App& app, const std::string& flag, CodecSchedule& codecs,
                  const std::string& help) {
  app.add_option_function<std::vector<std::string>>(
         flag,
         [flag, &codecs](const std::vector<std::string>& parts) {
           absl::StatusOr<CodecSchedule> read = CodecSchedule::Parse(parts);
           if (!read.ok()) {
             throw CLI::ValidationError(absl::StrCat(flag, " ", absl::StrJoin(parts, ",")),
                                        std::string(read.status().message()));
           }
           codecs = *std::move(read);
         },
         help)
      ->delimiter(',');
}

// What crosses a link.
void AddCodecFlags(CLI::App& app, RunSettings& s) {
  AddCodecFlag(app, "--codec-forward", s.codec_forward,
               absl::StrCat("activations: ", CodecFamilyTexts(),
                            "; or from epochs on, e.g. 0:mbq:2,60:mbq:3 (default: identity)"));
  AddCodecFlag(app, "--codec-backward", s.codec_backward,
               "gradients: the same, e.g. stochastic:8 (default: identity)");
  AddListFlag(app, "--bits", s.bits,
              "bits by epoch instead: accept (AccEPT's schedule for the model), "
              "FORWARD/BACKWARD, e.g. 2,60:3,160:4/8,120:4; of mbq and stochastic, or of the "
              "codecs' families. bandwidth: the plan gives each direction of each link the most "
              "bits with which the link is not the slowest part, no fewer than accept has; of "
              "hadamard, or of the codecs' families. It goes by --plan-mbps, else --link-mbps, "
              "else takes links for fast, and from step 10 on by what was measured, unless "
              "--replan off");
}

// Who takes part and how the model is cut.
void AddPipelineFlags(CLI::App& app, RunSettings& s) {
  app.add_option("--local-workers", s.local_workers,
                 "stages on this host; 0: plain loop, no pipeline")
      ->capture_default_str();
  app.add_option("--workers", s.workers, "workers that dial in, besides the local ones")
      ->capture_default_str();
  app.add_option("--listen", s.listen, "address for dialling workers")->capture_default_str();
  app.add_option("--worker-timeout-s", s.worker_timeout_s, "how long to wait for workers to join")
      ->capture_default_str();
  app.add_option("--worker-threads", s.worker_threads, "compute threads of a local worker")
      ->capture_default_str();
  app.add_option("--schedule", s.schedule,
                 absl::StrCat("one of ", absl::StrJoin(ScheduleNames(), ", ")))
      ->capture_default_str();
  app.add_option("--policy", s.policy,
                 absl::StrCat("who cuts the model: ", absl::StrJoin(PolicyNames(), ", ")))
      ->capture_default_str();
  app.add_option("--replan", s.replan,
                 "move layers at barriers where that saves time: on, off, auto (ftpipehd, accept, "
                 "runnel do; with --bits bandwidth the bits of any policy follow the links)")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->capture_default_str();
  app.add_option("--cost", s.cost,
                 "what plans are made from: measured (each layer, on each worker), or predicted "
                 "(from ten sub-models a worker, corrected by what its stages take)")
      ->check(CLI::IsMember({"measured", "predicted"}))
      ->capture_default_str();
  app.add_option("--predictor-profiles", s.predictor_profiles,
                 "with --cost predicted: folder with *.profile files of devices that are known, "
                 "such as predictor/profiles of the sources (default: none, the FLOPs line)");
  app.add_option("--caps", s.caps,
                 "in-flight micro-batches by stage, e.g. 5,3,1 (default: the schedule's)")
      ->delimiter(',');
  AddCodecFlags(app, s);
  app.add_option("--link-mbps", s.link_mbps, "limit of each link, each way; 0: none")
      ->capture_default_str();
  app.add_option(
         "--plan-mbps", s.plan_mbps,
         "what a plan takes each link for, each way, packet headers included (frames get 95.6 % of "
         "it), where nothing is measured yet; 0: as "
         "--link-mbps. Plans made at barriers go by what was measured; the summary's "
         "plan_bandwidth says which it was")
      ->capture_default_str();
  app.add_option("--link-delay-ms", s.link_delay_ms, "added to each link, each way")
      ->capture_default_str();
}

// How it is trained. A value given by hand must be good as it is: -1 stands for "the model's
// default" only inside.
void AddTrainingFlags(CLI::App& app, RunSettings& s) {
  app.add_option("--epochs", s.epochs, "passes over the training set (default: the model's)")
      ->check(kCountRange);
  app.add_option("--max-batches", s.max_batches,
                 "stop after this many optimizer steps from the run's start")
      ->check(kCountRange);
  app.add_option("--batch-size", s.batch_size,
                 "samples of one optimizer step (default: the model's)")
      ->check(kCountRange);
  app.add_option("--micro-batches", s.micro_batches,
                 "micro-batches of one step (default: async 1, sync 4)")
      ->check(kCountRange);
  app.add_option("--lr", s.lr, "learning rate (default: the model's)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--momentum", s.momentum, "of SGD (default: the model's)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--weight-decay", s.weight_decay, "of SGD (default: the model's)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--milestones", s.milestones,
                 "epochs at which the rate drops, e.g. 60,120 (default: the model's)")
      ->delimiter(',')
      ->check(kCountRange);
  app.add_option("--milestone-factor", s.milestone_factor, "what the rate is multiplied by there")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--look-ahead", s.look_ahead,
                 "against staleness: forwards use the weights that this share of the momentum will "
                 "have led to by their own step; 0: the newest ones (default: 0, at stages with "
                 "raised caps 0.5)")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--aggregate-every", s.aggregate_every,
                 "against staleness: steps between means of a stage's weight versions (FTPipeHD); "
                 "0: never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
         "--stale-rate-steps", s.stale_rate_steps,
         "against staleness: a stage with raised caps, whose gradients are S steps old, begins "
         "with 1/S of the rate and has all of it after so many steps; 0: from the start "
         "(default: half of the run's steps)")
      ->check(CLI::NonNegativeNumber);
  AddListFlag(app, "--gradient-bits", s.gradient_bits,
              "integer recipes: bits that a step keeps, BITS or CONV/LINEAR, or by epoch, e.g. "
              "0:3/3,10:2/2; plateau:BITS[:BARRIERS]: one less whenever the training loss has not "
              "fallen for so many barriers, 5 (default: 2, later 1, at last 0)");
  app.add_option("--seed", s.seed, "of everything random")->capture_default_str();
  app.add_option("--barrier-every", s.barrier_every, "optimizer steps between barriers")
      ->check(kCountRange)
      ->capture_default_str();
  app.add_option("--eval-every", s.eval_every,
                 "epochs between evaluations; 0: only at the end, -1: never (no accuracy)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1'000'000'000}))
      ->capture_default_str();
  app.add_option("--eval-batch-size", s.eval_batch_size,
                 "samples at once in evaluation (default: the batch size)")
      ->check(kCountRange);
}

// What is written and shown.
void AddOutputFlags(CLI::App& app, RunSettings& s) {
  app.add_option("--checkpoint-dir", s.checkpoint_dir,
                 "folder for check-points, one at each barrier");
  app.add_option("--journal", s.journal, "file for the record of all decisions (see replay)");
  app.add_option("--summary", s.summary, "JSON file with the result; -: standard output");
  app.add_option("--metrics-port", s.metrics_port,
                 "port for the page, /metrics and /healthz; 0: any free one")
      ->check(CLI::Range(0, 65535));
  app.add_option("--config", "file with flags, one 'name=value' a line; the command line wins");
}

// CLI11 would read a file for the program itself only, not for one of its commands.
absl::Status TakeConfig(CLI::App& command) {
  const CLI::Option& config = *command.get_option("--config");
  if (config.count() == 0) return absl::OkStatus();
  const auto path = config.as<std::string>();
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("--config ", path, ": cannot be read"));
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigBase().from_config(file)) {
      CLI::Option* option = command.get_option_no_throw(absl::StrCat("--", item.name));
      if (option == nullptr || !item.parents.empty() || option == &config) {
        return absl::InvalidArgumentError(absl::StrCat("--config ", path, ": '", item.fullname(),
                                                       "' is no flag of ", command.get_name()));
      }
      if (option->count() > 0) continue;
      option->add_result(item.inputs);
      option->run_callback();
    }
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(absl::StrCat("--config ", path, ": ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace

void AddRunFlags(CLI::App& app, RunSettings& s) {
  AddDataFlags(app, s);
  AddPipelineFlags(app, s);
  AddTrainingFlags(app, s);
  AddOutputFlags(app, s);
}

absl::Status FinishRunFlags(CLI::App& command, RunSettings& settings) {
  if (absl::Status status = TakeConfig(command); !status.ok()) return status;
  settings.has_milestones = command.count("--milestones") > 0;
  return absl::OkStatus();
}

}  // namespace runnel
