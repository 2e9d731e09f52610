#pragma once

// What a run came to, as the JSON file of --summary.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "central/records/gate_summary.h"
#include "proto/base/figures/class_counts.h"
#include "proto/base/figures/figure_fields.h"
#include "proto/base/plan/link_rate.h"
#include "proto/base/plan/plan.h"
#include "proto/base/training/precision/precision_cost.h"

namespace runnel {

// One link, from stage i to stage i + 1: its figures are what both stages report (figure_fields.h).
struct LinkSummary {
  std::string codec_forward;
  std::string codec_backward;
  Telemetry above;       // of stage i
  Telemetry below;       // of stage i + 1
  bool relayed = false;  // by central: stage i cannot dial stage i + 1
};

// What a plan took the links for.
struct PlanBandwidth {
  struct Link {  // a rate that is not set: no limit
    LinkRate forward;
    LinkRate backward;
    double delay_seconds = 0;  // each way, the mean of both
  };
  // Where that came from: "--links", "--link-mbps", "measured" (ways that were not measured yet
  // are what the user gave), "none" (nothing was known), or "recorded" (a plan from elsewhere).
  std::string source;
  std::vector<Link> links;  // of the plan
};

// What a micro-batch's time is made of, by simulation with measured figures. Their sum is the time.
struct PeriodParts {
  // What would make it shorter, and the seconds that a micro-batch would take then.
  struct Help {
    std::string what;
    double seconds = 0;
  };
  std::string slowest = {};  // name of the device that computes longest; empty: nothing is known
  double computing_seconds = 0;  // of that device
  // With links that take no time: filling and draining, at barriers or at each step; and waiting
  // since no more micro-batches may be under way.
  double bubble_seconds = 0;
  double schedule_seconds = 0;
  double links_seconds = 0;
  // For which training stands, or which it loses to them on the same processors; the mean of all
  // micro-batches, evaluated after or not.
  double evaluation_seconds = 0;
  double other_seconds = 0;  // what the simulation does not explain
  // Of the sum: since layers lie where the workers' memory has room for them.
  double memory_seconds = 0;
  std::vector<Help> helps = {};  // that are worth it, best first
};

// What the pipeline took for a micro-batch up to a report, beside what was predicted when its plan
// was made.
struct PeriodComparison {
  struct Stage {
    double measured_seconds = 0;  // of its computation
    double predicted_seconds = 0;
  };
  struct Link {
    PlanBandwidth::Link measured;
    PlanBandwidth::Link predicted;
  };
  int64_t step = 0;
  double measured_seconds = 0;
  double predicted_seconds = 0;  // 0: nothing was predicted
  std::vector<Stage> stages = {};
  std::vector<Link> links = {};
  std::string cause = {};  // of a difference, for people; empty: there is none to speak of
  PeriodParts parts = {};
};

// Searches for a better plan while the stages trained.
struct PlanSearches {
  int64_t done = 0;
  int64_t skipped = 0;  // nothing had changed since the last one
  double processor_seconds = 0;
};

// Mini-batches that stage 0 was done with at a time after the run's first report.
struct TimelinePoint {
  int64_t batches = 0;
  double seconds = 0;
};

// What a stage computes for one micro-batch. 0: not known.
struct StageSeconds {
  double predicted = 0;  // from the times that the plan was made from
  double measured = 0;   // mean since the plan holds
};

// One stage's measurements: its figures are what it reports (figure_fields.h).
struct StageSummary {
  Telemetry telemetry;
  FigureBase base = {};
  StageSeconds seconds = {};
  std::string numerics_class = {};  // of the backend that computed it last
};

// Workers were lost and training went on without them. Seconds are of a phase each, since the one
// before; none: the phase was not reached.
struct RecoverySummary {
  int64_t step = 0;                        // barrier from which training went on
  std::vector<std::string> workers;        // that were lost
  std::string source = "central";          // of the state: central, or the workers' replicas
  std::optional<double> detect_s;          // since the lost worker was last heard of: at most that
  std::optional<double> plan_s;            // with starting a worker again, where that was needed
  std::optional<double> fetch_s;           // until the stages had their states
  std::optional<double> first_gradient_s;  // until a micro-batch had been through all and back
  std::optional<double> caught_up_s;       // until what was lost was trained again
};

// The stages' states of barriers, as neighbours keep them.
struct ReplicationSummary {
  int64_t count = 0;    // barriers that were replicated
  int64_t skipped = 0;  // since the one before was still on its way
  int64_t step = 0;     // of the last one
  // Sums over the barriers.
  double stall_s = 0;  // that training stood while stages copied
  double took_s = 0;   // until all neighbours had the states, while training went on
  int64_t bytes = 0;   // that crossed links
};

struct EvaluationSummary {
  int64_t step = 0;
  double accuracy = 0;
  double loss = 0;
  ClassCounts counts = {};    // of the last one alone
  double effective_macs = 0;  // of the run until then (precision_cost.h); 0: not known
};

// A measurement of what codecs add to the gradients' noise (NoiseMeasured).
struct NoiseSummary {
  int64_t step = 0;
  double added = 0;
  double by_table = 0;
  double scale_samples = 0;
  int64_t micro_batches = 0;
  double seconds = 0;
  std::string codecs;
  bool is_way = false;  // of one way of a link alone, which `codecs` names
};

struct RunSummary {
  double accuracy = 0;  // of the last evaluation, in [0, 1]
  double loss = 0;      // of the last evaluation
  // Of --validation-share: the test set, with the weights of the end. All other evaluations are of
  // the validation samples.
  std::optional<EvaluationSummary> test;
  std::vector<std::string> class_names;  // of the data set, for the counts of evaluations
  bool stopped_early = false;            // --early-stop ended the run
  double train_loss = 0;                 // mean over the samples of the last epoch
  double samples_per_s = 0;
  // Of a processor, by central's own process between grants and barriers.
  double central_processor_share = 0;
  // By simulation of the first plan with the devices' profiles; 0: nothing was profiled, left out.
  double predicted_samples_per_s = 0;
  double wall_s = 0;
  std::string weights_sha256;
  int64_t steps = 0;
  int64_t epochs = 0;
  std::string model;
  std::string dataset;
  std::string schedule;
  std::string policy;
  std::string cost = "measured";  // what plans were made from, where the policy asks for times
  std::string predictor;          // of cost "predicted"; else left out
  int64_t seed = 0;
  std::string recipe = "fp32";
  std::string precision_setting = {};  // as --precision takes it; with `precision`
  std::string gradient_bits;  // of an integer recipe, as --gradient-bits takes them; else left out
  int64_t loss_scale = 0;     // of recipe fp16, at the end; 0: left out
  std::optional<PrecisionCost> precision;  // of recipes with grids, of the whole run
  std::optional<GateSummary> gates;        // of models with gates, whose barriers it saw
  std::string codec_forward;               // as asked for; "codecs": {"forward", "backward"}
  std::string codec_backward;
  Plan plan;
  std::vector<std::string> device_names;  // by the plan's device numbers
  PlanBandwidth plan_bandwidth;           // of `plan`
  PeriodComparison period;                // of the last report; left out if nothing was predicted
  PlanSearches searches;
  std::vector<LinkSummary> links;
  std::vector<StageSummary> stages;
  std::vector<EvaluationSummary> evaluations;
  std::vector<RecoverySummary> recoveries;
  ReplicationSummary replication;
  std::vector<NoiseSummary> gradient_noise;  // left out if there is none
  std::vector<TimelinePoint> timeline;
};

// One indented JSON object with a line end: accuracy, loss, train_loss, samples_per_s,
// [predicted_samples_per_s], [joules_per_sample], wall_s, weights_sha256, steps, epochs, model,
// dataset, schedule, policy, cost, [predictor], seed, recipe, [gradient_bits],
// [top_5, classes[], confusion[][]], [test {}], [loss_scale], [precision {setting, effective_share, share_of_8_8, macs_done, macs_in_full, effective_macs {},
// turns, levels[], gates {}}], codecs
// {forward, backward}, plan {stages[]}, plan_bandwidth {source, links[]}, plan_searches {done,
// skipped, processor_s}, [period {step, measured_s, predicted_s, cause, stages[], links[]}],
// links[], stages[], evaluations[], recoveries[], replication {}, [gradient_noise[]], timeline[]; keys as the members
// above. A figure that is not finite is null.
std::string SummaryToJson(const RunSummary& summary);

// To a file, whole or not at all (WriteFileAtomically); "-" is standard output. The status names
// path and cause.
absl::Status WriteSummary(const RunSummary& summary, const std::string& path);

}  // namespace runnel
