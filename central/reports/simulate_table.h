#pragma once

// `runnel-lab simulate`: plans of several policies on a scenario, at several bandwidths, and
// how fast each would train; and, where the scenario brings a published table, whether that table
// comes out again.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "central/reports/profiled_hosts.h"
#include "compress/link_bits.h"
#include "partition/plan_builder.h"
#include "partition/scenario.h"
#include "predictor/cost/measured_cost.h"
#include "proto/base/plan/device_times.h"
#include "proto/base/plan/plan.h"
#include "proto/json/json_fields.h"

namespace runnel {

// What is compared: a policy with what it puts on the links.
struct SimulatedMethod {
  std::string name;    // "accept", "compression", ...
  std::string policy;  // of the table of policies
  CodecSchedule codec_forward = {};
  CodecSchedule codec_backward = {};
  bool chooses_codecs = false;  // among SimulateOptions::codecs
};

// The methods that have a name of their own: those of AccEPT's comparison (its section 4.4) and
// ours. FTPipeHD sends FP32, AccEPT 2-bit MBQ and 8-bit stochastic gradients (its first stage of
// bits). `predictor` is AccEPT without its codecs, `compression` FTPipeHD with them. `measured` and
// `measured_compression` are `predictor` and `accept` where the predictor is always right: for
// hosts of which nothing can be predicted. The laboratory (deploy/lab/sweep.py) asks for this
// table.
absl::Span<const SimulatedMethod> NamedMethods();
// What `runnel-central train` is told for a method.
std::vector<std::string> TrainFlags(const SimulatedMethod& method);

struct SimulateOptions {
  std::vector<std::string> policies;  // methods and policies; empty: ScenarioModel::DefaultPolicies
  std::vector<double> mbps;           // of every link, both ways; empty: the scenario's links
  std::vector<std::string> codecs;    // "forward/backward" pairs for `runnel`, most exact first
  double learning_budget_percent = kLearningBudgetPercent;  // RunSettings::learning_budget
  int64_t max_cap = 16;
  ProfileSource profiles = {};
};

// `codecs` unless said otherwise: the most exact first, with the fewest bits forward that accuracy
// allows at first; without coding, too: slow devices may have no time for it.
std::vector<std::string> DefaultCodecPairs();

// Methods by name; a policy's name that no method has means that policy with FP32 on all links. If
// ftpipehd and accept are both asked for, AccEPT's ablations are added: "compression" (FTPipeHD's
// estimate, AccEPT's codecs) and "predictor" (the opposite); with measured_compression "measured".
std::vector<SimulatedMethod> MethodsFor(const std::vector<std::string>& names);
// Those that published times stand beside.
std::vector<SimulatedMethod> PublishedMethods(const Scenario& scenario);

// One method at one bandwidth.
struct SimulatedCell {
  std::string method;
  double mbps = 0;  // 0: the scenario's links
  Plan plan;
  // Policies that plan anew by what the plan that holds shows may never settle: so many plans take
  // turns, of which `plan` is one, and times are means over all of them. Moves take no time here.
  int plans_in_turn = 1;
  double seconds_per_batch = 0;  // an optimizer step
  double samples_per_s = 0;
  // That its codecs add to the gradients', as a share of it, by the table of codecs.
  double noise = 0;
  std::vector<double> noise_by_link;  // their sum is `noise`
  double staleness = 0;               // StalenessCharge
  double efficiency = 0;              // slowest lane or way over the time taken
  std::vector<double> busy_share;     // by stage
  std::vector<double> link_share;     // by link, the busier way
};

// One time of the published table.
struct ReproducedCell {
  std::string scenario;
  std::string method;
  double mbps = 0;
  double published_minutes = 0;
  double simulated_minutes = 0;
  bool fitted = false;  // of the column on which speeds were fitted

  double error() const { return simulated_minutes / published_minutes - 1; }
};

// A scenario and what it is simulated with.
class ScenarioModel {
 public:
  // InvalidArgument names a model, schedule or codec that is not known, a profile of another number
  // of layers, ...; others as MeasuredHosts.
  static absl::StatusOr<ScenarioModel> Create(Scenario scenario, const SimulateOptions& options);

  const Scenario& scenario() const { return scenario_; }
  // ftpipehd, runnel, and between them accept where the hosts can be predicted, else
  // measured_compression.
  std::vector<std::string> DefaultPolicies() const;
  // With these speeds of the hosts.
  void SetSpeeds(const std::vector<double>& speeds);
  // Of a micro-batch, by host, instead of profiles and speeds: plans are made from `planned` and
  // simulated with `real`.
  void SetTimes(std::vector<DeviceTimes> planned, std::vector<DeviceTimes> real);

  // mbps 0: the scenario's links. Errors as MakePlan, and of PredictedHosts for a method that plans
  // from predictions.
  absl::StatusOr<SimulatedCell> Run(const SimulatedMethod& method, double mbps) const;
  // By the closed form, quickly.
  absl::StatusOr<double> BoundSecondsPerBatch(const SimulatedMethod& method, double mbps) const;

 private:
  ScenarioModel() = default;
  absl::StatusOr<PlanRequest> Request(const SimulatedMethod& method, double mbps) const;
  absl::StatusOr<MeasuredCost> RealCost() const;
  absl::StatusOr<MeasuredCost> PlannedCost(const PolicyRow& policy) const;

  Scenario scenario_;
  SimulateOptions options_;
  ModelSpec model_;
  const ScheduleRow* schedule_ = nullptr;
  // By host, of a micro-batch at speed 1.
  std::vector<DeviceTimes> measured_;
  absl::StatusOr<std::vector<DeviceTimes>> predicted_;  // an error: why nothing can be predicted
  std::vector<DeviceTimes> planned_, real_;             // SetTimes; empty: as the scenario says
};

// Speeds of the hosts that bring the closed form nearest (least sum of squared logarithms) to the
// published times of the column fit_mbps, and to no others; of speeds that do that about as well,
// the ones most alike.
absl::StatusOr<std::vector<double>> FitSpeeds(ScenarioModel model,
                                              const std::vector<SimulatedMethod>& methods);

// Every published time of a method again, by simulation.
absl::StatusOr<std::vector<ReproducedCell>> Reproduce(const ScenarioModel& model,
                                                      const std::vector<SimulatedMethod>& methods);

// Median |error| of `ftpipehd` and `accept` (or measured_compression) outside the fitted column:
// what decides whether further figures may be shown. NaN without such cells.
double MedianError(const std::vector<ReproducedCell>& cells);
inline constexpr double kMostMedianError = 0.15;

// For people: "0-7 | 8-14 | 15-19, caps 3,2,1, mbq:2/stochastic:8", hosts by name.
std::string PlanText(const Scenario& scenario, const Plan& plan);

}  // namespace runnel
