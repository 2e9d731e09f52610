#include "central/run/run_planning.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "central/planning/live/given_links.h"
#include "central/planning/rules/gate_counts.h"
#include "central/planning/rules/loss_interval.h"
#include "central/settings/codec_settings.h"
#include "central/settings/gradient_bits_setting.h"
#include "compress/link_bits.h"
#include "partition/zoo/zoo.h"
#include "proto/base/host/host_processors.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/batching.h"
#include "proto/base/training/dials/barrier_every.h"
#include "proto/base/training/dials/cost_target.h"
#include "proto/base/training/dials/gradient_bits.h"
#include "proto/base/training/dials/loss_scale.h"
#include "proto/base/training/dials/precision.h"

namespace runnel {
namespace {

// TCP's payload in a full packet of Ethernet, headers included.
constexpr double kPacketPayloadShare = 1448.0 / 1514;

// --link-mbps paces the bytes of frames; a rate of --links is what a network carries, headers of
// packets included.
absl::StatusOr<LinkInputs> LinksOf(const RunSettings& settings) {
  LinkInputs links;
  links.frame_share = kPacketPayloadShare;
  links.given.delay_seconds = settings.link_delay_ms * 1e-3;
  if (settings.link_mbps > 0) {
    links.given.rate = LinkRate::Mbps(settings.link_mbps);
    links.source = "--link-mbps";
  }
  if (settings.links.empty()) return links;
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--links ", what));
  };
  double mbps = 0;
  if (absl::SimpleAtod(settings.links, &mbps)) {
    if (!(mbps > 0) || !std::isfinite(mbps))
      return wrong(absl::StrCat(settings.links, ": must be above 0 Mbps, or a file"));
    links.given.rate = LinkRate::Mbps(mbps * kPacketPayloadShare);
    links.source = "--links";
    return links;
  }
  absl::StatusOr<std::vector<ScenarioLink>> ways = ReadGivenLinks(settings.links);
  if (!ways.ok()) return wrong(ways.status().message());
  links.ways = *std::move(ways);
  return links;
}

absl::StatusOr<CodecInputs> CodecsOfRun(const RunSetup& setup) {
  const RunSettings& settings = setup.settings;
  CodecInputs codecs;
  codecs.forward = settings.codec_forward;
  codecs.backward = settings.codec_backward;
  codecs.follow_links = BitsFollowLinks(settings);
  codecs.bits = {setup.row->bit_switches,
                 CodecFamilyOf(settings.codec_forward, kBandwidthFamily),
                 CodecFamilyOf(settings.codec_backward, kBandwidthFamily),
                 LosslessCodec(setup.format),
                 settings.epochs,
                 settings.learning_budget / 100};
  const auto has_recipe = [](const CodecSchedule& schedule) {
    const auto& steps = schedule.steps();
    return std::any_of(steps.begin(), steps.end(),
                       [](const CodecStep& step) { return step.codec == RecipeCodec(); });
  };
  if (has_recipe(codecs.forward) || has_recipe(codecs.backward)) {
    RUNNEL_ASSIGN_OR_RETURN(codecs.levels,
                            LinkLevels::Of(settings.recipe, setup.training, setup.model));
  }
  return codecs;
}

// Micro-batches of an epoch's last step where it has fewer than the others; 0: it has as many.
int64_t ShortStep(const Batching& batching) {
  const int64_t steps = batching.steps_per_epoch();
  const int64_t last = batching.sequences_per_epoch() - batching.FirstSequence(steps - 1).value();
  return steps > 1 && last < batching.FirstSequence(1).value() ? last : 0;
}

absl::Status AddGateCounts(const RunSetup& setup, TrainingRules& rules) {
  if (!HasGates(setup.model)) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(GateCost cost, GateCost::Of(setup.model));
  RUNNEL_ASSIGN_OR_RETURN(CostTargetSetting target, ParseCostTarget(setup.training.cost_target));
  rules.Add(GateCounts::kName, std::make_unique<GateCounts>(std::move(cost), std::move(target)));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanningInputs> MakePlanningInputs(const RunSetup& setup, int64_t stop_step,
                                                  int64_t first_step,
                                                  const std::vector<TrainingChange>& changes) {
  RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(setup.training));
  PlanningInputs inputs;
  inputs.model = setup.model;
  inputs.policy = setup.policy;
  // The plain loop has all layers on one device, whatever the policy asks for.
  if (setup.plain_loop) {
    RUNNEL_ASSIGN_OR_RETURN(inputs.policy, FindPolicy("uniform"));
  }
  inputs.schedule = setup.schedule;
  inputs.format = setup.format;
  const absl::StatusOr<RecipeName> recipe = ParseRecipeName(setup.settings.recipe);
  RUNNEL_ASSIGN_OR_RETURN(const PrecisionSetting precision,
                          ParsePrecision(setup.training.precision));
  if (recipe.ok()) inputs.recipe_memory = MemoryOf(*recipe, precision);
  inputs.caps = setup.settings.caps;
  inputs.dataset_samples = setup.training.dataset_samples;
  inputs.batch_size = setup.training.batch_size;
  inputs.micro_batches = setup.training.micro_batches;
  inputs.micro_batch_size = batching.MicroBatchSizes().front();
  inputs.short_step = ShortStep(batching);
  inputs.barrier_every = setup.barriers.every;
  inputs.recomputes = setup.settings.recompute == kDecidedRecompute;
  inputs.replicates = setup.settings.replicate_every >= 0 && !setup.plain_loop;
  inputs.looks_ahead = setup.training.look_ahead > 0;
  inputs.raised_looks_ahead = setup.training.raised_look_ahead > 0;
  RUNNEL_ASSIGN_OR_RETURN(inputs.links, LinksOf(setup.settings));
  RUNNEL_ASSIGN_OR_RETURN(inputs.codecs, CodecsOfRun(setup));
  inputs.codecs.steps_per_epoch = batching.steps_per_epoch();
  inputs.codecs.first_bits =
      inputs.codecs.levels.Planned(changes, first_step / batching.steps_per_epoch(), first_step);
  inputs.replan = {MovesLayers(setup), ChangesCodecs(setup), stop_step, {}};
  RUNNEL_ASSIGN_OR_RETURN(inputs.replan.layer_state_bytes, StateBytes(setup.model, setup.format));
  inputs.replan.follows_members = setup.settings.replan != "off" && !setup.plain_loop;
  inputs.needs_profile = NeedsProfile(setup);
  inputs.predictor = setup.settings.predictor;
  if (!setup.settings.predictor.empty())
    inputs.predictor_profiles = setup.settings.predictor_profiles;
  return inputs;
}

absl::StatusOr<TrainingRules> MakeTrainingRules(const RunSetup& setup, int64_t first_step,
                                                const std::vector<TrainingChange>& changes,
                                                const RuleStates& states) {
  TrainingRules rules;
  const auto add = [&rules](absl::string_view name, absl::string_view dial, absl::string_view value,
                            absl::string_view arguments) -> absl::Status {
    RUNNEL_ASSIGN_OR_RETURN(const TrainingRuleRow* row, FindTrainingRule(name, dial));
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<TrainingRule> rule, row->make(value, arguments));
    rules.Add(row->name, std::move(rule));
    return absl::OkStatus();
  };
  if (!setup.settings.gradient_bits.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const GradientBitsSetting setting,
                            ParseGradientBitsSetting(setup.settings.gradient_bits));
    const GradientBits bits = GradientBitsAt(setup.training, changes, 0, first_step);
    if (!setting.rule.empty())
      RUNNEL_RETURN_IF_ERROR(add(setting.rule, kGradientBitsDial, GradientBitsText({{0, bits}}),
                                 setting.rule_arguments));
  }
  if (setup.format.scales_loss() && setup.training.loss_scale == kDecidedLossScale) {
    const int64_t scale = LossScaleAt(setup.training, changes, first_step);
    RUNNEL_RETURN_IF_ERROR(add(kDecidedLossScale, kLossScaleDial, absl::StrCat(scale), ""));
  }
  RUNNEL_ASSIGN_OR_RETURN(const PrecisionSetting precision,
                          ParsePrecision(setup.training.precision));
  if (precision.kind == PrecisionSetting::Kind::kRule) {
    const int64_t level = PrecisionLevelAt(precision, changes, 0, first_step);
    RUNNEL_RETURN_IF_ERROR(add(precision.rule, kPrecisionDial, absl::StrCat(level),
                               setup.training.precision.substr(precision.rule.size() + 1)));
  }
  if (setup.settings.barrier_every == kDecidedBarrierEvery) {
    const int64_t every = BarrierRuleBehind(setup.barriers, changes, first_step).every;
    RUNNEL_RETURN_IF_ERROR(add(kLossesRule, kBarrierEveryDial, absl::StrCat(every), ""));
  }
  RUNNEL_ASSIGN_OR_RETURN(const CostTargetSetting target,
                          ParseCostTarget(setup.training.cost_target));
  if (!target.percents.empty()) {
    const int64_t level = CostLevelAt(target, changes, first_step);
    RUNNEL_RETURN_IF_ERROR(
        add("pfq_cost", kCostTargetDial, absl::StrCat(level), setup.training.cost_target));
  }
  RUNNEL_RETURN_IF_ERROR(AddGateCounts(setup, rules));
  RUNNEL_RETURN_IF_ERROR(rules.Restore(states));
  return rules;
}

absl::StatusOr<TrainingRules> MakeCountingRules(const RunSetup& setup, const RuleStates& states) {
  TrainingRules rules;
  RUNNEL_RETURN_IF_ERROR(AddGateCounts(setup, rules));
  RUNNEL_RETURN_IF_ERROR(rules.Restore(states));
  return rules;
}

absl::StatusOr<std::unique_ptr<RunPlanner>> MakeRunPlanner(
    const RunSetup& setup, int64_t stop_step, int64_t first_step,
    const std::vector<TrainingChange>& changes) {
  RUNNEL_ASSIGN_OR_RETURN(PlanningInputs inputs,
                          MakePlanningInputs(setup, stop_step, first_step, changes));
  inputs.host_processors = UsableProcessors() / static_cast<double>(setup.settings.worker_threads);
  return RunPlanner::Create(std::move(inputs));
}

}  // namespace runnel
