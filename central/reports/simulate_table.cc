#include "central/reports/simulate_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "central/planning/bandwidth_bits.h"
#include "partition/zoo/zoo.h"
#include "predictor/cost/measured_cost.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// AccEPT's first stage of bits.
CodecSchedule AcceptCodec(Direction direction) {
  const int bits = direction == Direction::kForward ? 2 : 8;
  return CodecSchedule(CodecId{std::string(AcceptFamily(direction)), bits});
}

CodecSchedule HadamardCodec(int bits) { return CodecSchedule(CodecId{"hadamard", bits}); }

SimulatedMethod MethodFor(const std::string& name) {
  for (const SimulatedMethod& method : NamedMethods()) {
    if (method.name == name) return method;
  }
  return {name, name};
}

// Of times at speed 1.
absl::StatusOr<MeasuredCost> AtSpeeds(const Scenario& scenario, std::vector<DeviceTimes> times) {
  for (size_t i = 0; i < times.size(); ++i) times[i] = times[i].Scaled(1 / scenario.hosts[i].speed);
  return MeasuredCost::Create(std::move(times));
}

// Cuts of a policy that plans again and again: far more than it goes through before one repeats.
constexpr size_t kMostCuts = 1000;

// The request's plan. Of a policy that measures by the plan that holds: the plans that take turns
// in the end, mostly one.
absl::StatusOr<std::vector<Plan>> PlansInTurn(PlanRequest request) {
  std::vector<Plan> plans;
  RUNNEL_ASSIGN_OR_RETURN(plans.emplace_back(), MakePlan(request));
  while (request.policy->next != nullptr && plans.size() < kMostCuts) {
    request.held.clear();
    for (const StagePlan& stage : plans.back().stages) request.held.push_back(stage.last_layer);
    RUNNEL_ASSIGN_OR_RETURN(Plan next, MakePlan(request));
    const auto seen = std::find_if(plans.begin(), plans.end(),
                                   [&](const Plan& plan) { return plan.stages == next.stages; });
    if (seen != plans.end()) {
      plans.erase(plans.begin(), seen);
      break;
    }
    plans.push_back(std::move(next));
  }
  return plans;
}

std::vector<double> Shares(const std::vector<int64_t>& busy_ns, int64_t total_ns) {
  std::vector<double> shares;
  for (int64_t ns : busy_ns) {
    shares.push_back(static_cast<double>(ns) / static_cast<double>(std::max<int64_t>(1, total_ns)));
  }
  return shares;
}

// Lets the pipeline run for a while as the scenario's training would: drained at barriers, or after
// each step of a synchronous schedule.
absl::Status RunPipeline(const ScenarioTraining& training, const PipelineModel& model,
                         const Placement& placement, SimulatedCell& cell) {
  SimulatedPipeline pipeline = ToPipeline(model, placement);
  pipeline.drain_every = model.drain_every > 0 ? model.drain_every : model.barrier_every;
  pipeline.micro_batches = pipeline.drain_every > 0 ? pipeline.drain_every : 1000;
  RUNNEL_ASSIGN_OR_RETURN(const SimulatedRun run, Simulate(pipeline));
  RUNNEL_ASSIGN_OR_RETURN(const double seconds, SimulatedPeriod(model, placement));
  cell.seconds_per_batch = seconds * static_cast<double>(training.micro_batches);
  cell.samples_per_s = static_cast<double>(training.batch_size) / cell.seconds_per_batch;
  cell.efficiency = ResourceBoundNs(pipeline) * 1e-9 / seconds;
  cell.busy_share = Shares(run.compute_busy_ns, run.total_ns);
  cell.link_share = Shares(run.down_busy_ns, run.total_ns);
  const std::vector<double> up = Shares(run.up_busy_ns, run.total_ns);
  for (size_t i = 0; i < up.size(); ++i) {
    const LinkTimes& link = pipeline.links[i];
    const bool is_shared = link.down.medium >= 0 && link.down.medium == link.up.medium;
    cell.link_share[i] =
        is_shared ? cell.link_share[i] + up[i] : std::max(cell.link_share[i], up[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Span<const SimulatedMethod> NamedMethods() {
  static const CodecSchedule forward = AcceptCodec(Direction::kForward);
  static const CodecSchedule backward = AcceptCodec(Direction::kBackward);
  static const SimulatedMethod kMethods[] = {
      {"ftpipehd", "ftpipehd"},
      {"compression", "ftpipehd", forward, backward},
      {"predictor", "accept"},
      {"accept", "accept", forward, backward},
      {"measured", "accept_measured"},
      {"measured_compression", "accept_measured", forward, backward},
      {"runnel", "runnel", forward, backward, true},
      {"forced", "dp", HadamardCodec(2), HadamardCodec(4)},
  };
  return kMethods;
}

std::vector<std::string> DefaultCodecPairs() {
  std::vector<std::string> pairs = {"identity/identity"};
  for (const auto& [forward, backward] : kBandwidthPairs) {
    pairs.push_back(
        absl::StrCat(kBandwidthFamily, ":", forward, "/", kBandwidthFamily, ":", backward));
  }
  return pairs;
}

std::vector<std::string> TrainFlags(const SimulatedMethod& method) {
  if (method.chooses_codecs) return {"--policy", method.policy, "--bits", "bandwidth"};
  return {"--policy",         method.policy,
          "--codec-forward",  method.codec_forward.text(),
          "--codec-backward", method.codec_backward.text()};
}

std::vector<SimulatedMethod> MethodsFor(const std::vector<std::string>& names) {
  const auto asked = [&](absl::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<SimulatedMethod> methods;
  for (const std::string& name : names) {
    const bool is_whole = name == "accept" || name == "measured_compression";
    if (is_whole && asked("ftpipehd")) {
      const std::string cut = name == "accept" ? "predictor" : "measured";
      for (const std::string& ablation : {std::string("compression"), cut}) {
        if (asked(ablation) || std::any_of(methods.begin(), methods.end(),
                                           [&](const auto& one) { return one.name == ablation; }))
          continue;
        methods.push_back(MethodFor(ablation));
      }
    }
    methods.push_back(MethodFor(name));
  }
  return methods;
}

std::vector<SimulatedMethod> PublishedMethods(const Scenario& scenario) {
  std::vector<SimulatedMethod> methods;
  for (const auto& [name, minutes] : scenario.published.minutes) methods.push_back(MethodFor(name));
  return methods;
}

absl::StatusOr<ScenarioModel> ScenarioModel::Create(Scenario scenario,
                                                    const SimulateOptions& options) {
  ScenarioModel made;
  made.options_ = options;
  RUNNEL_ASSIGN_OR_RETURN(made.model_, MakeModel(scenario.training.model));
  RUNNEL_ASSIGN_OR_RETURN(made.schedule_, FindSchedule(scenario.training.schedule));
  for (const ScenarioProfile& profile : scenario.profiles) {
    if (!profile.device_profile.empty()) continue;
    if (static_cast<int>(profile.layer_ms.size()) != made.model_.layer_count()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "scenario ", scenario.name, ": profile ", profile.name, " has ", profile.layer_ms.size(),
          " layers, model ", made.model_.name, " ", made.model_.layer_count()));
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(made.measured_, MeasuredHosts(scenario, made.model_, options.profiles));
  made.predicted_ = PredictedHosts(scenario, made.model_, options.profiles);
  made.scenario_ = std::move(scenario);
  return made;
}

std::vector<std::string> ScenarioModel::DefaultPolicies() const {
  return {"ftpipehd", predicted_.ok() ? "accept" : "measured_compression", "runnel"};
}

void ScenarioModel::SetSpeeds(const std::vector<double>& speeds) {
  for (size_t i = 0; i < speeds.size(); ++i) scenario_.hosts[i].speed = speeds[i];
}

void ScenarioModel::SetTimes(std::vector<DeviceTimes> planned, std::vector<DeviceTimes> real) {
  planned_ = std::move(planned);
  real_ = std::move(real);
}

absl::StatusOr<MeasuredCost> ScenarioModel::RealCost() const {
  return real_.empty() ? AtSpeeds(scenario_, measured_) : MeasuredCost::Create(real_);
}

absl::StatusOr<MeasuredCost> ScenarioModel::PlannedCost(const PolicyRow& policy) const {
  if (!planned_.empty()) return MeasuredCost::Create(planned_);
  if (policy.basis != PlanBasis::kPredicted) return RealCost();
  RUNNEL_RETURN_IF_ERROR(predicted_.status());
  return AtSpeeds(scenario_, *predicted_);
}

absl::StatusOr<PlanRequest> ScenarioModel::Request(const SimulatedMethod& method,
                                                   double mbps) const {
  PlanRequest request;
  request.model = &model_;
  request.schedule = schedule_;
  RUNNEL_ASSIGN_OR_RETURN(request.policy, FindPolicy(method.policy));
  request.micro_batches = scenario_.training.micro_batches;
  request.micro_batch_size = MicroBatchSize(scenario_.training);
  // Codecs do not change here: any number of epochs has the same mean.
  const auto choice = [&request](const LinkPlan& codecs) {
    return MakeCodecChoice(codecs, 1, request.format);
  };
  RUNNEL_ASSIGN_OR_RETURN(request.codecs, choice({method.codec_forward, method.codec_backward}));
  if (method.chooses_codecs) {
    request.noise_budget = options_.learning_budget_percent / 100;
    for (const std::string& pair : options_.codecs) {
      const std::vector<std::string> names = absl::StrSplit(pair, '/');
      if (names.size() != 2) {
        return absl::InvalidArgumentError(
            absl::StrCat("--codecs ", pair, ": must be FORWARD/BACKWARD, e.g. mbq:4/stochastic:8"));
      }
      LinkPlan codecs;
      RUNNEL_ASSIGN_OR_RETURN(codecs.codec_forward, CodecSchedule::Parse(names[0]));
      RUNNEL_ASSIGN_OR_RETURN(codecs.codec_backward, CodecSchedule::Parse(names[1]));
      RUNNEL_ASSIGN_OR_RETURN(request.codec_choices.emplace_back(), choice(codecs));
    }
    // No other codecs than these.
    request.codecs = request.codec_choices.front();
  }
  request.barrier_every = scenario_.training.barrier_every;
  request.max_cap = options_.max_cap;
  request.link_speeds = SpeedsBetween(scenario_);
  const int hosts = static_cast<int>(scenario_.hosts.size());
  for (const ScenarioMachine& machine : scenario_.machines)
    request.host_processors.push_back(machine.processors);
  const std::vector<int> machines = MachinesOf(scenario_);
  for (int i = 0; i < hosts; ++i) {
    request.devices.push_back(DeviceId(i));
    const ScenarioHost& host = scenario_.hosts[i];
    const ScenarioProfile& profile = ProfileOf(scenario_, host);
    const double coded = profile.codec_gb_per_s * 1e9 * host.speed;
    request.device_costs.push_back({profile.forward_share, profile.input_gradient_share,
                                    coded > 0 ? 1 / coded : 0, host.memory_limit_mb << 20});
    request.device_costs.back().host = machines[static_cast<size_t>(i)];
    if (mbps == 0) continue;
    for (LinkSpeed& speed : request.link_speeds[i]) speed.rate = LinkRate::Mbps(mbps);
  }
  return request;
}

absl::StatusOr<double> ScenarioModel::BoundSecondsPerBatch(const SimulatedMethod& method,
                                                           double mbps) const {
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, Request(method, mbps));
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost planned, PlannedCost(*request.policy));
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost real, RealCost());
  request.compute = &planned;
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<Plan> plans, PlansInTurn(request));
  request.compute = &real;
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel pipeline, MakePipelineModel(request));
  double sum_ns = 0;
  for (const Plan& plan : plans) {
    RUNNEL_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(request, pipeline, plan));
    sum_ns += BoundNs(ToPipeline(pipeline, placement));
  }
  return sum_ns / static_cast<double>(plans.size()) * 1e-9 *
         static_cast<double>(scenario_.training.micro_batches);
}

absl::StatusOr<SimulatedCell> ScenarioModel::Run(const SimulatedMethod& method, double mbps) const {
  RUNNEL_ASSIGN_OR_RETURN(PlanRequest request, Request(method, mbps));
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost planned, PlannedCost(*request.policy));
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCost real, RealCost());
  request.compute = &planned;
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<Plan> plans, PlansInTurn(request));
  request.compute = &real;
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel pipeline, MakePipelineModel(request));
  SimulatedCell cell;
  cell.method = method.name;
  cell.mbps = mbps;
  cell.plans_in_turn = static_cast<int>(plans.size());
  double seconds = 0;
  for (const Plan& plan : plans) {
    cell.plan = plan;
    RUNNEL_ASSIGN_OR_RETURN(const Placement placement, PlacementOf(request, pipeline, plan));
    RUNNEL_RETURN_IF_ERROR(RunPipeline(scenario_.training, pipeline, placement, cell));
    cell.noise = AddedNoise(pipeline, placement);
    cell.noise_by_link = NoiseByLink(pipeline, placement);
    cell.staleness = StalenessCharge(pipeline, placement);
    seconds += cell.seconds_per_batch / static_cast<double>(plans.size());
  }
  cell.seconds_per_batch = seconds;
  cell.samples_per_s = static_cast<double>(scenario_.training.batch_size) / seconds;
  return cell;
}

absl::StatusOr<std::vector<ReproducedCell>> Reproduce(const ScenarioModel& model,
                                                      const std::vector<SimulatedMethod>& methods) {
  const PublishedTimes& published = model.scenario().published;
  std::vector<ReproducedCell> cells;
  for (const auto& [name, minutes] : published.minutes) {
    const auto method =
        std::find_if(methods.begin(), methods.end(),
                     [&name = name](const SimulatedMethod& one) { return one.name == name; });
    if (method == methods.end()) continue;
    for (size_t i = 0; i < minutes.size(); ++i) {
      const double mbps = published.mbps[i];
      RUNNEL_ASSIGN_OR_RETURN(const SimulatedCell cell, model.Run(*method, mbps));
      cells.push_back({model.scenario().name, name, mbps, minutes[i],
                       cell.seconds_per_batch * static_cast<double>(published.steps) / 60,
                       mbps == published.fit_mbps});
    }
  }
  return cells;
}

double MedianError(const std::vector<ReproducedCell>& cells) {
  std::vector<double> errors;
  for (const ReproducedCell& cell : cells) {
    const bool counts = cell.method == "ftpipehd" || cell.method == "accept" ||
                        cell.method == "measured_compression";
    if (counts && !cell.fitted) errors.push_back(std::abs(cell.error()));
  }
  if (errors.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(errors.begin(), errors.end());
  const size_t half = errors.size() / 2;
  return errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
}

std::string PlanText(const Scenario& scenario, const Plan& plan) {
  std::vector<std::string> stages;
  std::vector<int64_t> caps;
  std::vector<std::string> codecs;
  for (const StagePlan& stage : plan.stages) {
    stages.push_back(absl::StrCat(OfSoleDevice(stage, scenario.hosts).name, " ", stage.first_layer,
                                  "-", stage.last_layer));
    caps.push_back(stage.cap);
  }
  for (const LinkPlan& link : plan.links) {
    codecs.push_back(absl::StrCat(link.codec_forward.text(), "/", link.codec_backward.text()));
  }
  if (std::adjacent_find(codecs.begin(), codecs.end(), std::not_equal_to<>()) == codecs.end() &&
      !codecs.empty()) {
    codecs.resize(1);
  }
  return absl::StrCat(absl::StrJoin(stages, ", "), "; caps ", absl::StrJoin(caps, ","),
                      codecs.empty() ? "" : "; ", absl::StrJoin(codecs, ", "));
}

}  // namespace runnel
