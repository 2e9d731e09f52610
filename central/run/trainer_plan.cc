#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/planning/predicted_cost.h"
#include "central/run/trainer_impl.h"
#include "central/settings/codec_settings.h"
#include "proto/base/batching.h"
#include "proto/base/status_macros.h"

namespace runnel {

// What the coordinator is given to decide with: its options, the first plan, better ones.

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
  options.plan = [this](const std::vector<Device>& devices,
                        const std::vector<std::vector<double>>& seconds) {
    return MakePlan(devices, seconds);
  };
  if (!job_.plan.has_value() && Replans(setup())) {
    replanner_.emplace(ReplanOptions());
    options.replan = [this](const BarrierReport& report) {
      NoteLinkRates(report.stages, report.devices.size(), link_rates_);
      return replanner_->AtBarrier(report);
    };
  }
  if (predictor_.has_value()) UsePredictor(options);
  options.shaping = {settings.link_mbps, settings.link_delay_ms};
  options.link_token = token_;
  options.initial_state = std::move(job_.state);
  return options;
}

absl::Status Trainer::Impl::MakePredictor() {
  if (setup().settings.cost != "predicted" || !NeedsProfile(setup()) || job_.plan.has_value())
    return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(predictor_, MakeRunPredictor(setup()));
  if (predictor_->known_devices() == 0) {
    parts_.logger->Log(Severity::kInfo,
                       absl::StrCat("no profile of ", setup().model.name,
                                    " is known: layers are predicted by the FLOPs line first"));
  }
  return absl::OkStatus();
}

void Trainer::Impl::UsePredictor(CoordinatorOptions& options) {
  options.profile_ranges = predictor_->representatives();
  options.predict = [this](
                        int device,
                        const std::vector<double>& seconds) -> absl::StatusOr<std::vector<double>> {
    RUNNEL_RETURN_IF_ERROR(predictor_->Characterise(device, seconds));
    return predictor_->RangeSeconds(device);
  };
  if (!replanner_.has_value()) return;
  options.to_measure = [this](const BarrierReport& report) {
    return replanner_->ToMeasure(report);
  };
}

absl::StatusOr<Plan> Trainer::Impl::MakePlan(const std::vector<Device>& devices,
                                             const std::vector<std::vector<double>>& seconds) {
  if (job_.plan.has_value()) {
    Plan plan = *job_.plan;
    plan.generation = job_.generation;
    return plan;
  }
  std::vector<int> numbers(devices.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  for (size_t i = 0; i < devices.size(); ++i) {
    profiled_.processor_shares.push_back(devices[i].processor_share);
    if (!seconds.empty())
      profiled_.profiled_seconds.push_back(
          std::accumulate(seconds[i].begin(), seconds[i].end(), 0.0));
  }
  RUNNEL_ASSIGN_OR_RETURN(Plan plan,
                          PlanFor(setup(), job_.generation, numbers, seconds, profiled_));
  if (!seconds.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const double period_s,
                            PredictPeriod(setup(), plan, seconds, profiled_));
    RUNNEL_ASSIGN_OR_RETURN(const Batching batching, MakeBatching(setup().training));
    outcome_.summary.predicted_samples_per_s =
        static_cast<double>(batching.MicroBatchSizes().front()) / period_s;
  }
  return plan;
}

ReplannerOptions Trainer::Impl::ReplanOptions() {
  ReplannerOptions options;
  options.make_plan = [this](const std::vector<int>& devices,
                             const std::vector<std::vector<double>>& seconds) {
    return PlanFor(setup(), job_.generation, devices, seconds, WithRates(link_rates_));
  };
  if (!MovesLayers(setup())) options.make_plan = nullptr;
  if (BitsFollowLinks(setup().settings)) {
    options.fit_bits = [this](const Plan& plan, const std::vector<std::vector<double>>& seconds,
                              double bandwidth_share) {
      return RefitBits(setup(), plan, seconds, WithRates(Scaled(link_rates_, bandwidth_share)));
    };
    options.coding_error = [this](const Plan& plan) { return CodingErrorOf(setup(), plan); };
  }
  options.period_seconds = [this](const Plan& plan,
                                  const std::vector<std::vector<double>>& seconds) {
    return PredictPeriod(setup(), plan, seconds, WithRates(link_rates_));
  };
  for (const LayerState& layer : job_.state.layers) {
    int64_t bytes = 0;
    for (const auto* tensors : {&layer.tensors, &layer.momentum}) {
      for (const TensorData& tensor : *tensors) bytes += static_cast<int64_t>(tensor.bytes.size());
    }
    options.layer_state_bytes.push_back(bytes);
  }
  const double mbps =
      setup().settings.plan_mbps > 0 ? setup().settings.plan_mbps : setup().settings.link_mbps;
  if (mbps > 0) options.link_bytes_per_second = mbps * 1e6 / 8;
  options.micro_batches_a_step = setup().settings.micro_batches;
  options.stop_step = job_.stop_step;
  options.predictor = predictor_.has_value() ? &*predictor_ : nullptr;
  return options;
}

}  // namespace runnel
