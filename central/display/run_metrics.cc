#include "central/display/run_metrics.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "central/display/metric_text.h"
#include "central/records/shown_figures.h"
#include "proto/process/version.h"

namespace runnel {
namespace {

using Labels = std::vector<std::string>;

double AsDouble(int64_t value) { return static_cast<double>(value); }

// labels: names, and their values.
void AddFigure(const ShownFigure& figure, std::string labels, Labels values, MetricText& text) {
  const FigureView& view = *figure.view;
  if (view.metric == nullptr) return;
  if (view.at_zero != FigureAtZero::kShown && figure.is_zero()) return;
  // What a model says is no measurement.
  if (figure.field->has_source) {
    labels += ",source";
    values.emplace_back(Name(figure.telemetry->energy_source));
  }
  const Metric metric = {view.metric, view.help, labels.c_str()};
  if (const auto* histogram = std::get_if<Histogram Telemetry::*>(&figure.field->member)) {
    text.Add(metric, values, figure.telemetry->**histogram);
  } else {
    text.Add(metric, values, AsReal(figure.value));
  }
}

void AddStages(const RunView& view, const RunFigures& figures, MetricText& text) {
  constexpr Metric kLayers = {"runnel_stage_layers", "Layers of the stage.", "stage,worker"};
  constexpr Metric kInFlight = {"runnel_stage_in_flight_limit",
                                "Micro-batches in flight that the stage may have and keep data of.",
                                "stage,worker"};
  constexpr Metric kBegun = {"runnel_stage_in_flight",
                             "Micro-batches in flight: with a step for each, the weights of the "
                             "oldest are so many steps old.",
                             "stage,worker"};
  constexpr Metric kSeconds = {"runnel_stage_micro_batch_seconds",
                               "Seconds that the stage computes for a micro-batch, as measured and "
                               "as the plan predicted.",
                               "stage,worker,of"};
  for (size_t i = 0; i < figures.stages.size(); ++i) {
    const std::string stage = absl::StrCat(i);
    const std::string& worker = view.stages[i].worker;
    const StagePlan& plan = view.stages[i].plan;
    text.Add(kLayers, {stage, worker}, plan.last_layer - plan.first_layer + 1);
    text.Add(kInFlight, {stage, worker}, AsDouble(plan.cap));
    const Telemetry& done = view.stages[i].telemetry;
    text.Add(kBegun, {stage, worker}, AsDouble(done.forwards - done.backwards));
    for (const ShownFigure& figure : FiguresOf(figures.stages[i]))
      AddFigure(figure, "stage,worker", {stage, worker}, text);
    if (i >= view.stage_seconds.size()) continue;
    const StageSeconds& seconds = view.stage_seconds[i];
    if (seconds.measured > 0) text.Add(kSeconds, {stage, worker, "measured"}, seconds.measured);
    if (seconds.predicted > 0) text.Add(kSeconds, {stage, worker, "predicted"}, seconds.predicted);
  }
}

void AddLinks(const RunView& view, const RunFigures& figures, MetricText& text) {
  constexpr char kLabels[] = "link,direction,from,to";
  constexpr Metric kBits = {"runnel_link_codec_width",
                            "Bits an element of the codec, frame headers left out.",
                            "link,direction,from,to"};
  constexpr Metric kExpected = {"runnel_link_expected_bytes_per_second",
                                "Bytes a second that the plan took the link to carry.",
                                "link,direction,from,to"};
  constexpr Metric kRelayed = {"runnel_link_relayed", "1: the link goes by way of central.",
                               "link,from,to"};
  for (size_t i = 0; i < figures.links.size(); ++i) {
    const std::string link = absl::StrCat(i);
    const std::string& above = view.stages[i].worker;
    const std::string& below = view.stages[i + 1].worker;
    const auto labels_of = [&](Direction direction) {
      return direction == Direction::kForward ? Labels{link, "forward", above, below}
                                              : Labels{link, "backward", below, above};
    };
    for (const ShownFigure& figure : FiguresOf(figures.links[i]))
      AddFigure(figure, kLabels, labels_of(DirectionOf(figure.field->of)), text);
    text.Add(kRelayed, {link, above, below}, figures.links[i].relayed ? 1 : 0);
    if (i >= view.links.size()) continue;
    const LinkView& planned = view.links[i];
    for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
      const bool forward = direction == Direction::kForward;
      const double bits = forward ? planned.bits_forward : planned.bits_backward;
      const LinkRate rate = forward ? planned.expected.forward : planned.expected.backward;
      if (bits > 0) text.Add(kBits, labels_of(direction), bits);
      if (rate.is_set()) text.Add(kExpected, labels_of(direction), rate.bytes_per_second());
    }
  }
}

// How many there were, and how long each phase of the last one took.
void AddRecoveries(const std::vector<RecoverySummary>& recoveries, MetricText& text) {
  text.Add({"runnel_recoveries_total", "Times that training went on without a lost worker."}, {},
           static_cast<double>(recoveries.size()));
  if (recoveries.empty()) return;
  const RecoverySummary& last = recoveries.back();
  const std::pair<const char*, std::optional<double>> phases[] = {
      {"detect", last.detect_s},
      {"plan", last.plan_s},
      {"fetch", last.fetch_s},
      {"first_gradient", last.first_gradient_s},
      {"caught_up", last.caught_up_s}};
  for (const auto& [phase, seconds] : phases) {
    if (seconds.has_value())
      text.Add({"runnel_recovery_seconds", "Seconds that each phase of the last recovery took.",
                "phase"},
               {phase}, *seconds);
  }
}

void AddGridBits(const GridBits& bits, MetricText& text) {
  constexpr Metric kGridBits = {"runnel_grid_bits_width",
                                "Bits of the recipe's grids at the step under way; of gates, those "
                                "of the dearest option.",
                                "operand"};
  if (bits.forward <= 0) return;
  text.Add(kGridBits, {"weights_and_activations"}, bits.forward);
  text.Add(kGridBits, {"gradients"}, bits.backward);
}

// The last measurement of all codecs at once.
void AddGradientNoise(const std::vector<NoiseSummary>& measured, MetricText& text) {
  const auto found = std::find_if(measured.rbegin(), measured.rend(),
                                  [](const NoiseSummary& one) { return !one.is_way; });
  if (found == measured.rend()) return;
  const NoiseSummary& last = *found;
  text.Add({"runnel_gradient_noise_added_ratio",
            "What codecs add to the gradients' noise, as a share of what mini-batches have."},
           {}, last.added);
  text.Add({"runnel_gradient_noise_table_ratio", "The same by the table of codecs."}, {},
           last.by_table);
  text.Add({"runnel_gradient_noise_scale_samples",
            "Samples of a mini-batch whose gradient has as much noise as length; 0: not known."},
           {}, last.scale_samples);
  text.Add({"runnel_gradient_noise_step", "Step of the last measurement of codecs' noise."}, {},
           AsDouble(last.step));
}

// What gates have chosen up to the last barrier, and what that costs beside the present target.
void AddGateShares(const RunView& view, MetricText& text) {
  constexpr Metric kSkipped = {"runnel_gate_skipped_ratio",
                               "Share of the samples that skipped the block, since the run began.",
                               "block"};
  constexpr Metric kBits = {"runnel_gate_bits_width",
                            "Mean bits of weights and activations of the samples that did not skip "
                            "the block, since the run began.",
                            "block"};
  for (const GateSummary::Gate& gate : view.gates)
    text.Add(kSkipped, {gate.layer}, gate.skipped_share);
  for (const GateSummary::Gate& gate : view.gates) text.Add(kBits, {gate.layer}, gate.mean_bits);
  const GateSummary::Target* present = nullptr;
  for (const GateSummary::Target& target : view.gate_targets) {
    if (target.samples > 0) present = &target;
  }
  if (present == nullptr) return;
  text.Add({"runnel_gate_cost_ratio",
            "Cost of the blocks behind gates in front of the last barrier, as a share of FP32's."},
           {}, present->last_percent / 100);
  text.Add({"runnel_gate_cost_target_ratio", "Target of this cost (--cost-target)."}, {},
           present->percent / 100);
}

// What gates chose since the plan holds.
void AddGates(const ShownRun& run, MetricText& text) {
  constexpr Metric kSamples = {"runnel_gate_samples_total",
                               "Samples that took this option of the gate of the layer, by number "
                               "from 0 on.",
                               "layer,option"};
  for (const StageStatus& stage : run.view.stages) {
    for (const GateChoices& gate : stage.telemetry.gates) {
      for (size_t option = 0; option < gate.samples.size(); ++option)
        text.Add(kSamples, {absl::StrCat(gate.layer), absl::StrCat(option)},
                 AsDouble(gate.samples[option]));
    }
  }
}

// step: that training is at.
void AddReplication(const ReplicationSummary& replication, int64_t step, MetricText& text) {
  text.Add({"runnel_replicas_total", "Barriers whose state neighbours keep a copy of."}, {},
           AsDouble(replication.count));
  text.Add({"runnel_replicas_skipped_total",
            "Barriers not copied, since the copy before was on its way."},
           {}, AsDouble(replication.skipped));
  text.Add({"runnel_replica_bytes_total", "Bytes of copies that crossed links."}, {},
           AsDouble(replication.bytes));
  text.Add({"runnel_replica_stall_seconds_total",
            "Seconds that training stood while stages copied their state."},
           {}, replication.stall_s);
  text.Add({"runnel_replica_seconds_total",
            "Seconds until neighbours had the copies, while training went on."},
           {}, replication.took_s);
  text.Add({"runnel_replica_step", "Step of the last copy."}, {}, AsDouble(replication.step));
  if (replication.count > 0) {
    text.Add({"runnel_replica_age_steps",
              "Steps since the last copy: what the loss of a worker would train again."},
             {}, AsDouble(std::max<int64_t>(0, step - replication.step)));
  }
}

void AddWorkers(const ShownRun& run, MetricText& text) {
  constexpr Metric kUp = {"runnel_worker_up", "1: the worker is here; 0: it is lost.", "worker"};
  constexpr Metric kAge = {"runnel_worker_heartbeat_age_seconds",
                           "Seconds since the worker was last heard of; it sends four times a "
                           "second.",
                           "worker"};
  constexpr Metric kMemory = {"runnel_worker_memory_limit_bytes",
                              "Memory that the worker and its stage may take.", "worker"};
  constexpr Metric kProcessor = {"runnel_worker_processor_info",
                                 "1: the worker has this processor.",
                                 "worker,backend,device,driver,dot_product,usable"};
  text.Add(
      {"runnel_workers_wanted", "Workers that the run asked for, those of central's host too."}, {},
      AsDouble(run.facts.local_workers + run.facts.dialling_workers));
  text.Add({"runnel_workers_lost_total", "Times that a worker was lost."}, {},
           AsDouble(run.history.log.count(EventKind::kLost)));
  for (const WorkerView& worker : run.view.workers) {
    const std::string& name = worker.member.name;
    text.Add(kUp, {name}, worker.is_here() ? 1 : 0);
    if (!worker.is_here()) continue;
    text.Add(kAge, {name}, worker.heard_s_ago + run.age_s);
    if (worker.member.memory_bytes > 0)
      text.Add(kMemory, {name}, AsDouble(worker.member.memory_bytes));
    for (const ProcessorFacts& one : worker.member.processors) {
      text.Add(kProcessor,
               {name, one.backend, one.device, one.driver, one.dot_product, UsableText(one.state)},
               1);
    }
  }
}

void AddRun(const ShownRun& run, MetricText& text) {
  const RunView& view = run.view;
  text.Add({"runnel_build_info", "1: central is of this version.", "version"},
           {VersionText("runnel", kProtocolVersion)}, 1);
  text.Add(
      {"runnel_run_info", "1: what is trained, and how.", "model,dataset,schedule,policy,recipe"},
      {run.facts.model, run.facts.dataset, run.facts.schedule, run.facts.policy, run.facts.recipe},
      1);
  for (const absl::string_view phase : kRunPhases)
    text.Add({"runnel_phase", "1: the run is in this phase.", "phase"}, {std::string(phase)},
             phase == Name(view.phase) ? 1 : 0);
  text.Add({"runnel_step", "Optimizer steps done."}, {}, AsDouble(view.progress.step));
  text.Add({"runnel_steps", "Optimizer steps of the whole run."}, {},
           AsDouble(view.progress.steps));
  text.Add({"runnel_epoch", "Epoch that is trained, from 1 on."}, {},
           AsDouble(view.progress.epoch + 1));
  text.Add({"runnel_epochs", "Epochs of the whole run."}, {}, AsDouble(view.progress.epochs));
  text.Add({"runnel_samples_total", "Training samples done, those trained again included."}, {},
           AsDouble(run.history.samples));
  text.Add({"runnel_samples_per_second", "Training samples a second."}, {}, view.samples_per_s);
  text.Add({"runnel_learning_rate", "Learning rate of the step that is trained."}, {},
           view.learning_rate);
  text.Add({"runnel_train_loss", "Mean training loss since the last report."}, {},
           view.progress.loss);
  if (run.history.step_unix_s > 0)
    text.Add({"runnel_last_step_timestamp_seconds", "Unix time at which a step was done last."}, {},
             run.history.step_unix_s);
  text.Add({"runnel_plan_generation", "Number of the plan that holds; 0: none does yet."}, {},
           AsDouble(view.plan.generation.value()));
  text.Add({"runnel_plans_total", "Plans that have come into force."}, {},
           AsDouble(run.history.log.count(EventKind::kPlan)));
  text.Add({"runnel_moves_total", "Times that the run went on under another plan."}, {},
           AsDouble(std::max<int64_t>(0, run.history.log.count(EventKind::kPlan) - 1)));
  constexpr Metric kPeriod = {"runnel_micro_batch_seconds",
                              "Seconds of a micro-batch, as measured and as the plan predicted.",
                              "of"};
  if (view.period.predicted_seconds > 0) {
    text.Add(kPeriod, {"measured"}, view.period.measured_seconds);
    text.Add(kPeriod, {"predicted"}, view.period.predicted_seconds);
  }
}

void AddResults(const RunHistory& history, MetricText& text) {
  if (!history.evaluations.empty()) {
    const EvaluationSummary& last = history.evaluations.back();
    text.Add(
        {"runnel_test_accuracy_ratio", "Share of the test set that the last evaluation got right."},
        {}, last.accuracy);
    text.Add({"runnel_test_loss", "Mean cross-entropy of the last evaluation."}, {}, last.loss);
    text.Add({"runnel_test_step", "Step whose weights were evaluated last."}, {},
             AsDouble(last.step));
  }
  text.Add({"runnel_checkpoints_total", "Check-points written."}, {},
           AsDouble(history.log.count(EventKind::kCheckpoint)));
  text.Add({"runnel_checkpoint_failures_total", "Check-points that could not be written."}, {},
           AsDouble(history.log.count(EventKind::kCheckpointFailed)));
  if (const RunEvent& newest = history.log.newest_checkpoint(); newest.step >= 0) {
    text.Add({"runnel_checkpoint_timestamp_seconds",
              "Unix time at which a check-point was written last."},
             {}, newest.unix_s);
    text.Add({"runnel_checkpoint_step", "Step of the last check-point."}, {},
             AsDouble(newest.step));
  }
}

}  // namespace

std::string MetricsText(const ShownRun& run) {
  const RunFigures figures =
      SummariseStages(run.view.plan, run.view.stages, run.view.plan_ns, run.view.stage_samples);
  MetricText text;
  AddRun(run, text);
  AddResults(run.history, text);
  AddWorkers(run, text);
  AddStages(run.view, figures, text);
  AddLinks(run.view, figures, text);
  AddRecoveries(run.view.recoveries, text);
  AddReplication(run.view.replication, run.view.progress.step, text);
  AddGridBits(run.view.grid_bits, text);
  AddGradientNoise(run.view.gradient_noise, text);
  AddGates(run, text);
  AddGateShares(run.view, text);
  return text.Text();
}

}  // namespace runnel
