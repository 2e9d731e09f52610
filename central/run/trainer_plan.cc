#include <utility>

#include "central/run/trainer_impl.h"
#include "central/settings/codec_settings.h"

namespace runnel {

// What the coordinator is given.

CoordinatorOptions Trainer::Impl::Options() {
  const RunSettings& settings = setup().settings;
  ProfileNeeds needs = job_.planner->profile_needs();
  CoordinatorOptions options;
  options.model = setup().model;
  options.training = setup().training;
  options.barriers = setup().barriers;
  const bool evaluates = settings.eval_every >= 0 && job_.data != nullptr;
  options.eval_samples = evaluates ? job_.data->test->size() : 0;
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
  options.needs_profile = needs.devices;
  options.profile_ranges = std::move(needs.ranges);
  options.planner = job_.planner;
  options.first_generation = job_.generation;
  options.shaping = {settings.link_mbps, settings.link_delay_ms};
  options.link_token = token_;
  options.initial_state = std::move(job_.state);
  return options;
}

}  // namespace runnel
