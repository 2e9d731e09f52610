#include <utility>

#include "central/planning/fixed_planner.h"
#include "central/planning/run_planner.h"
#include "central/run/trainer_impl.h"
#include "central/settings/codec_settings.h"
#include "proto/base/status_macros.h"

namespace runnel {

// What the coordinator is given: its options and its planner.

CoordinatorOptions Trainer::Impl::Options() {
  const RunSettings& settings = setup().settings;
  CoordinatorOptions options;
  options.model = setup().model;
  options.training = setup().training;
  options.barriers = setup().barriers;
  options.eval_samples = settings.eval_every < 0 ? 0 : setup().data.test->size();
  options.first_step = job_.first_step;
  options.stop_step = job_.stop_step;
  options.workers = setup().workers;
  options.plain_loop = setup().plain_loop;
  options.plan_only = job_.plan_only;
  options.collect_at_barriers = !settings.checkpoint_dir.empty();
  options.recipe = settings.recipe;
  options.format = setup().format;
  options.backend = settings.backend;
  options.codecs = CodecsOf(settings);
  options.needs_profile = NeedsProfile(setup()) && !job_.plan.has_value();
  options.profile_ranges = profile_ranges_;
  options.planner = planner_.get();
  options.first_generation = job_.generation;
  options.shaping = {settings.link_mbps, settings.link_delay_ms};
  options.link_token = token_;
  options.initial_state = std::move(job_.state);
  return options;
}

absl::Status Trainer::Impl::MakePlanner() {
  if (job_.plan.has_value()) {
    planner_ = std::make_unique<FixedPlanner>(*job_.plan);
    return absl::OkStatus();
  }
  RUNNEL_ASSIGN_OR_RETURN(auto planner, RunPlanner::Create(&setup(), job_.stop_step, job_.state));
  if (const std::string note = planner->Note(); !note.empty())
    parts_.logger->Log(Severity::kInfo, note);
  profile_ranges_ = planner->ProfileRanges();
  planner_ = std::move(planner);
  return absl::OkStatus();
}

}  // namespace runnel
