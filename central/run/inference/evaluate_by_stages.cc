#include "central/run/inference/evaluate_by_stages.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "central/records/quantized_stages.h"
#include "central/run/run_planning.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Samples of a batch unless told otherwise: many are computed faster, few fill the pipeline sooner.
constexpr int64_t kMostBatch = 64;
constexpr int64_t kBatchBytes = int64_t{2} << 20;

int64_t BatchOf(const Shape& sample) {
  const int64_t bytes = sample.elements() * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(kBatchBytes / bytes, 1, kMostBatch);
}

}  // namespace

RunSettings ForStages(RunSettings settings, const RunSettings& pipeline, const Shape& sample) {
  const RunSettings defaults;
  settings.local_workers = pipeline.local_workers;
  settings.workers = pipeline.workers;
  settings.listen = pipeline.listen;
  settings.worker_timeout_s = pipeline.worker_timeout_s;
  settings.worker_threads = pipeline.worker_threads;
  settings.backend = pipeline.backend;
  settings.backend_options = pipeline.backend_options;
  settings.policy = pipeline.policy;
  settings.links = pipeline.links;
  settings.link_mbps = pipeline.link_mbps;
  settings.link_delay_ms = pipeline.link_delay_ms;
  int64_t& batch = settings.training.eval_batch_size = pipeline.training.eval_batch_size;
  if (batch == -1) batch = BatchOf(sample);
  // Batch size that plans are made for. Batch norms, which are part of the convolutions, want two
  // samples.
  settings.training.batch_size = std::max<int64_t>(batch, 2);
  // Nothing is trained: no step, no copy of a state, no other plan but after a loss.
  settings.schedule = defaults.schedule;
  settings.training.micro_batches = 1;
  settings.training.look_ahead = settings.training.aggregate_every = 0;
  settings.replan = "off";
  settings.replicate_every = -1;
  settings.predictor.clear();
  settings.predictor_profiles.clear();
  settings.bits.clear();
  return settings;
}

absl::StatusOr<TrainingOutcome> EvaluateByStages(const QuantizedModel& model,
                                                 const std::string& where, LoadedRun run,
                                                 const CommandContext& context) {
  RunSetup& setup = run.setup;
  absl::StatusOr<QuantizedStages> stages = CutAtLayers(setup.model, model.graph);
  if (!stages.ok()) {
    return absl::Status(stages.status().code(),
                        absl::StrCat(where, ": ", stages.status().message()));
  }
  RUNNEL_RETURN_IF_ERROR(UseIntegers(std::move(stages->model), setup));
  TrainingJob job;
  job.setup = &setup;
  job.data = &run.data;
  job.first_step = job.stop_step = model.step;
  job.state = std::move(stages->state);
  job.evaluate_only = true;
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<RunPlanner> planner,
                          MakeRunPlanner(setup, job.stop_step));
  job.planner = planner.get();
  return RunTrainingJob(std::move(job), nullptr, context);
}

}  // namespace runnel
