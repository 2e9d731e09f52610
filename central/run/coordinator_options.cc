#include "central/run/coordinator_options.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "central/run/evaluator.h"
#include "central/run/workers/local_workers.h"
#include "central/settings/codec_settings.h"
#include "proto/base/model/model_state.h"
#include "proto/base/training/codecs/link_levels.h"
#include "proto/transport/link/address.h"

namespace runnel {
namespace {

// Bursts of a layer or part; their median counts. More of them delay the start and change no plan.
constexpr int64_t kProfileRepetitions = 3;
// Longer than the period of a processor quota, so that its effect shows.
constexpr double kProfileBurstMs = 20;
// Of the second times: three of them are a few tenths of a second at most, with what it takes to
// compile a range and to run it once.
constexpr double kSecondBurstMs = 25;

RosterOptions SeatsOf(const RunSetup& setup, bool has_local_workers) {
  const auto dialling = static_cast<int>(setup.settings.workers);
  RosterOptions options;
  options.local_workers = has_local_workers ? setup.workers - dialling : 0;
  options.dialling_workers = setup.workers - options.local_workers;
  options.least_dialling = setup.settings.at_least;
  options.loopback_only = IsLoopbackAddress(setup.settings.listen);
  options.recipe = setup.settings.recipe;
  options.backend = setup.settings.backend;
  options.codecs = CodecsInSettings(setup.settings);
  return options;
}

PrepareStage CommonOf(const TrainingJob& job) {
  const RunSetup& setup = *job.setup;
  const RunSettings& settings = setup.settings;
  PrepareStage stage;
  stage.plain_loop = setup.plain_loop;
  stage.model = setup.model;
  stage.training = setup.training;
  const bool evaluates = settings.eval_every >= 0 && job.data != nullptr;
  stage.eval_samples = evaluates ? job.evaluated().size() : 0;
  stage.recipe = settings.recipe;
  stage.backend = settings.backend;
  stage.shaping = {settings.link_mbps, settings.link_delay_ms};
  return stage;
}

}  // namespace

CoordinatorOptions MakeCoordinatorOptions(TrainingJob& job, bool has_local_workers) {
  const RunSetup& setup = *job.setup;
  ProfileNeeds needs = job.planner->profile_needs();
  CoordinatorOptions options;
  options.roster = SeatsOf(setup, has_local_workers);
  options.roster.run = job.claim != nullptr ? job.claim->run() : RandomSecret();
  options.roster.life = job.claim != nullptr ? job.claim->life() : 1;
  options.stage = CommonOf(job);
  options.barriers = {setup.barriers, job.stop_step, options.stage.eval_samples,
                      setup.training.eval_batch_size, LabelsPerSample(setup.model).value_or(1)};
  options.measurement.request.repetitions = kProfileRepetitions;
  options.measurement.request.burst_ms = kProfileBurstMs;
  // Each computes on a processor of its own, or in all of those that there are.
  options.measurement.local_at_once =
      std::max<int64_t>(1, std::thread::hardware_concurrency() / setup.settings.worker_threads);
  options.measurement.second_burst_ms = kSecondBurstMs;
  options.measurement.sub_models = std::move(needs.ranges);
  options.measurement.request.cost_codecs = std::move(needs.cost_codecs);
  options.format = setup.format;
  options.join_patience_ns = setup.settings.worker_timeout_s * 1'000'000'000;
  options.first_generation = job.generation;
  options.link_token = RandomSecret();
  options.initial_state = std::move(job.state);
  options.first_step = job.first_step;
  options.needs_profile = needs.devices;
  options.profiles_first_only = needs.first_only;
  options.plan_only = job.plan_only;
  options.lists_programs = job.lists_programs;
  options.collect_at_barriers = !setup.settings.checkpoint_dir.empty();
  options.evaluates_beside = has_local_workers && !job.plan_only && !job.evaluate_only &&
                             EvaluatesBeside(setup, options.stage.eval_samples);
  options.evaluation_pace.most_share = static_cast<double>(setup.settings.eval_cost_percent) / 100;
  options.evaluation_pace.samples_a_step = setup.training.batch_size;
  options.evaluation_pace.host_threads = std::thread::hardware_concurrency();
  options.evaluation_pace.worker_threads = setup.settings.worker_threads;
  // The model was checked when the run was set up.
  options.evaluation_pace.layer_bytes = WeightBytes(setup.model, setup.format).value();
  options.evaluate_only = job.evaluate_only;
  // A plain loop beside a training is worth no recovery: its weights come again.
  options.recovers = !job.plan_only && !(job.evaluate_only && setup.plain_loop);
  options.replicate_every = setup.settings.replicate_every;
  options.dry_runs.stop_step = job.stop_step;
  const bool compares = !setup.plain_loop && !job.evaluate_only && !job.plan_only &&
                        !setup.format.integer_parameters() && !setup.format.integer_boundaries();
  if (compares) options.dry_runs.from_step = setup.settings.measure_noise;
  // The settings were checked when the run was set up.
  options.dry_runs.levels =
      LinkLevels::Of(setup.settings.recipe, setup.training, setup.model).value();
  options.dry_runs.places = NoisePlaces(setup.model, InferShapes(setup.model, 1).value());
  options.dry_runs_state = job.dry_runs_state;
  options.layer_bytes = StateBytes(setup.model, setup.format).value();
  options.changes = job.changes;
  options.planner = job.planner;
  options.rules = job.rules;
  options.early_stop = job.early_stop;
  return options;
}

}  // namespace runnel
