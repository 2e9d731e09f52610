#include "central/run/evaluator.h"

#include <string>
#include <utility>

#include "central/planning/fixed_planner.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/weight_average.h"
#include "proto/process/host_memory.h"

namespace runnel {
namespace {

// Settings of the plain loop that evaluates: the same model and numbers, one worker on this host
// with all layers.
RunSettings PlainLoopOf(RunSettings settings) {
  settings.local_workers = 0;
  settings.workers = 0;
  settings.at_least.reset();
  settings.caps.clear();
  DropAverage(settings.training);  // Run puts the averages in place of the weights
  settings.checkpoint_dir.clear();
  settings.journal.clear();
  settings.log.clear();
  settings.tensorboard.clear();
  settings.report.clear();
  settings.summary.clear();
  settings.metrics_port.reset();
  settings.listen = "127.0.0.1:0";
  settings.link_mbps = settings.link_delay_ms = 0;
  return settings;
}

Plan WholeModel(const RunSetup& setup) {
  Plan plan;
  StagePlan stage;
  stage.GiveTo(0);
  stage.last_layer = setup.model.layer_count() - 1;
  stage.cap = 1;
  plan.stages = {stage};
  return plan;
}

// Upper bound of the memory of a worker with all layers: weights four times (momentum; packed, which
// takes up to 16/9 of them: F(2x2, 3x3)), their gradient, and each operator's output once for an
// evaluation batch.
absl::StatusOr<int64_t> WholeModelBytes(const RunSetup& setup) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> layers,
                          InferShapes(setup.model, setup.training.eval_batch_size));
  const NumberFormat& format = setup.format;
  const auto each =
      static_cast<int64_t>(4 * SizeOf(format.parameter) + SizeOf(format.weight_gradient));
  int64_t bytes = 0;
  for (const LayerInfo& layer : layers) {
    bytes += layer.parameters * each;
    for (const Shape& output : layer.op_outputs) bytes += ValueBytes(format.activation, output);
  }
  return bytes;
}

}  // namespace

bool EvaluatesBeside(const RunSetup& setup, int64_t eval_samples) {
  if (eval_samples == 0 || setup.plain_loop || setup.workers < 2) return false;
  const absl::StatusOr<int64_t> bytes = WholeModelBytes(setup);
  return bytes.ok() && *bytes < AvailableMemoryBytes() / 2;
}

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const RunSetup& setup,
                                                             const DatasetSplits& data, Parts parts,
                                                             DoneFn on_done) {
  RUNNEL_ASSIGN_OR_RETURN(
      RunSetup plain,
      SetUpRun(PlainLoopOf(setup.settings), SampleFacts{setup.model.input, setup.model.classes}));
  RUNNEL_RETURN_IF_ERROR(SetTrainingSamples(data.train->size(), plain));
  return std::unique_ptr<Evaluator>(
      new Evaluator(std::move(plain), data, parts, std::move(on_done)));
}

Evaluator::Evaluator(RunSetup setup, const DatasetSplits& data, Parts parts, DoneFn on_done)
    : setup_(std::move(setup)),
      data_(data),
      parts_(parts),
      on_done_(std::move(on_done)),
      thread_([this] { Work(); }) {}

Evaluator::~Evaluator() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    if (running_ != nullptr) running_->Cancel();
  }
  changed_.notify_one();
  thread_.join();
}

void Evaluator::Evaluate(int64_t step, Generation generation, ModelState state,
                         std::vector<TrainingChange> changes) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back({step, generation, std::move(state), std::move(changes)});
  }
  changed_.notify_one();
}

void Evaluator::Work() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (ending_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    const int64_t step = job.step;
    const Generation generation = job.generation;
    lock.unlock();
    const absl::StatusOr<EvaluationFigures> figures = Run(std::move(job));
    lock.lock();
    if (ending_) return;
    lock.unlock();
    on_done_(step, generation, figures);
    lock.lock();
  }
}

absl::StatusOr<EvaluationFigures> Evaluator::Run(Job job) {
  FixedPlanner planner(WholeModel(setup_));
  RunDisplay silent({}, /*out=*/-1, parts_.clock);
  TrainingJob training;
  training.setup = &setup_;
  training.data = &data_;
  training.planner = &planner;
  training.first_step = training.stop_step = job.step;
  training.state = std::move(job.state);
  TakeAverages(training.state);
  training.changes = std::move(job.changes);
  training.evaluate_only = true;
  training.on_test_set = parts_.on_test_set;
  TrainerParts parts{parts_.transport, parts_.control, parts_.clock,
                     parts_.logger,    &silent,        /*journal=*/nullptr};
  parts.enrolment = parts_.enrolment;
  Trainer trainer(std::move(training), parts);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ending_) return absl::CancelledError("the run is over");
    running_ = &trainer;
  }
  absl::StatusOr<TrainingOutcome> outcome = trainer.Run();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ = nullptr;
  }
  RUNNEL_RETURN_IF_ERROR(outcome.status());
  const RunSummary& summary = outcome->summary;
  EvaluationFigures figures = {summary.accuracy, summary.loss, outcome->evaluation_s};
  if (!summary.evaluations.empty()) figures.counts = summary.evaluations.back().counts;
  return figures;
}

}  // namespace runnel
