#include "central/display/state_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/records/figure_json.h"
#include "central/records/gate_json.h"
#include "proto/base/training/dials/precision.h"
#include "proto/process/version.h"

namespace runnel {
namespace {

// A key whose value is not known is not there.
void Set(const char* key, double value, Json& json) {
  if (std::isfinite(value)) json[key] = value;
}
void SetPositive(const char* key, double value, Json& json) {
  if (value > 0) Set(key, value, json);
}
void SetText(const char* key, const std::string& text, Json& json) {
  if (!text.empty()) json[key] = text;
}

// What the user can do about it; empty: nothing needs to be done.
std::string RemedyOf(const RunEvent& event, const RunFacts& facts) {
  switch (event.kind) {
    case EventKind::kLost:
      return facts.join_commands.empty()
                 ? "nothing: central starts it again, or goes on without it"
                 : absl::StrCat("the run goes on without it; to have it back, start it again: ",
                                facts.join_commands.front());
    case EventKind::kCheckpointFailed:
      return "make room in the folder of --checkpoint-dir, or let central write there: the next "
             "barrier tries again";
    default:
      return "";
  }
}

Json PartsJson(const PeriodParts& parts) {
  Json helps = Json::array();
  for (const PeriodParts::Help& help : parts.helps)
    helps.push_back({{"what", help.what}, {"ms", help.seconds * 1e3}});
  return {{"slowest", parts.slowest},
          {"computing_ms", parts.computing_seconds * 1e3},
          {"links_ms", parts.links_seconds * 1e3},
          {"memory_ms", parts.memory_seconds * 1e3},
          {"bubble_ms", parts.bubble_seconds * 1e3},
          {"schedule_ms", parts.schedule_seconds * 1e3},
          {"evaluation_ms", parts.evaluation_seconds * 1e3},
          {"other_ms", parts.other_seconds * 1e3},
          {"helps", std::move(helps)}};
}

void AddRun(const ShownRun& run, Json& json) {
  const RunView& view = run.view;
  const ProgressState& progress = view.progress;
  json["phase"] = std::string(Name(view.phase));
  json["unix_s"] = run.unix_s;
  json["age_s"] = run.age_s;
  SetText("doing", view.doing, json);
  if (!view.doing.empty()) json["done_share"] = view.done_share;
  json["version"] = VersionText("runnel", kProtocolVersion);
  SetText("model", run.facts.model, json);
  SetText("dataset", run.facts.dataset, json);
  SetText("schedule", run.facts.schedule, json);
  SetText("policy", run.facts.policy, json);
  SetText("recipe", run.facts.recipe, json);
  json["layers"] = run.facts.layers;
  json["step"] = progress.step;
  json["steps"] = progress.steps;
  json["epoch"] = progress.epoch + 1;
  json["epochs"] = progress.epochs;
  json["samples_per_s"] = view.samples_per_s;
  const int64_t done = progress.step - view.first_step;
  if (done > 0 && view.phase != RunPhase::kDone) {
    json["eta_s"] = static_cast<double>(view.training_ns) * 1e-9 / static_cast<double>(done) *
                    static_cast<double>(progress.steps - progress.step);
  }
  SetPositive("learning_rate", view.learning_rate, json);
  Set("train_loss", progress.loss, json);
  if (!run.history.evaluations.empty())
    Set("accuracy", run.history.evaluations.back().accuracy, json);
  if (view.period.predicted_seconds > 0) {
    json["micro_batch_ms"] = view.period.measured_seconds * 1e3;
    json["predicted_ms"] = view.period.predicted_seconds * 1e3;
    SetText("slow_because", view.period.cause, json);
    if (const PeriodParts& parts = view.period.parts; !parts.slowest.empty())
      json["parts"] = PartsJson(parts);
  }
  json["recoveries"] = view.recoveries.size();
}

Json JoinJson(const ShownRun& run) {
  const auto here = [&run](bool local) {
    return std::count_if(run.view.workers.begin(), run.view.workers.end(),
                         [local](const WorkerView& worker) {
                           return worker.is_here() && worker.member.local == local;
                         });
  };
  Json json{{"local_wanted", run.facts.local_workers},
            {"wanted", run.facts.dialling_workers},
            {"local_here", here(true)},
            {"here", here(false)}};
  json["commands"] = run.facts.join_commands;
  return json;
}

Json WorkersJson(const ShownRun& run) {
  Json workers = Json::array();
  for (const WorkerView& worker : run.view.workers) {
    const Member& member = worker.member;
    Json json{{"name", member.name},
              {"state", member.state},
              {"here", worker.is_here()},
              {"local", member.local},
              {"relayed", member.relayed}};
    if (worker.is_here()) json["heard_s_ago"] = worker.heard_s_ago + run.age_s;
    SetText("address", member.address, json);
    SetText("numerics_class", member.numerics_class, json);
    SetText("options", member.backend_options, json);
    SetText("limits", member.limits, json);
    if (member.memory_bytes > 0) json["memory_bytes"] = member.memory_bytes;
    Json processors = Json::array();
    for (const ProcessorFacts& one : member.processors) {
      processors.push_back(
          {{"backend", one.backend}, {"usable", UsableText(one.state)}, {"text", ToText(one)}});
    }
    json["processors"] = std::move(processors);
    workers.push_back(std::move(json));
  }
  return workers;
}

Json StagesJson(const RunView& view, const RunFigures& figures) {
  Json stages = Json::array();
  for (size_t i = 0; i < view.stages.size(); ++i) {
    const StageStatus& stage = view.stages[i];
    Json json{{"device", stage.worker},
              {"first_layer", stage.plan.first_layer},
              {"last_layer", stage.plan.last_layer},
              {"cap", stage.plan.cap}};
    AddFigures(FiguresOf(figures.stages[i]), /*for_page=*/true, json);
    if (i < view.stage_seconds.size()) {
      SetPositive("predicted_ms", view.stage_seconds[i].predicted * 1e3, json);
      SetPositive("measured_ms", view.stage_seconds[i].measured * 1e3, json);
    }
    stages.push_back(std::move(json));
  }
  return stages;
}

Json LinksJson(const RunView& view, const RunFigures& figures) {
  Json links = Json::array();
  for (size_t i = 0; i < figures.links.size(); ++i) {
    const LinkSummary& link = figures.links[i];
    Json json{{"from", view.stages[i].worker},
              {"to", view.stages[i + 1].worker},
              {"codec_forward", link.codec_forward},
              {"codec_backward", link.codec_backward}};
    AddFigures(FiguresOf(link), /*for_page=*/true, json);
    json["relayed"] = link.relayed;
    if (i < view.links.size()) {
      const LinkView& planned = view.links[i];
      SetPositive("bits_forward", planned.bits_forward, json);
      SetPositive("bits_backward", planned.bits_backward, json);
      SetPositive("expected_forward_bytes_per_s", planned.expected.forward.bytes_per_second(),
                  json);
      SetPositive("expected_backward_bytes_per_s", planned.expected.backward.bytes_per_second(),
                  json);
    }
    links.push_back(std::move(json));
  }
  return links;
}

double BubbleShare(const RunView& view) {
  double busy_ns = 0;
  for (const StageStatus& stage : view.stages)
    busy_ns += static_cast<double>(stage.telemetry.busy_ns);
  const double time_ns =
      static_cast<double>(view.plan_ns) * static_cast<double>(view.stages.size());
  return time_ns > 0 ? std::clamp(1 - busy_ns / time_ns, 0.0, 1.0) : std::nan("");
}

Json PlansJson(const RunHistory& history) {
  Json plans = Json::array();
  for (const PlanShown& plan : history.plans) {
    Json stages = Json::array();
    for (const PlanShown::Stage& stage : plan.stages) {
      stages.push_back({{"device", stage.device},
                        {"first_layer", stage.first_layer},
                        {"last_layer", stage.last_layer}});
    }
    Json json{{"generation", plan.generation},
              {"from_step", plan.from_step},
              {"stages", std::move(stages)}};
    SetText("why", plan.why, json);
    SetText("links", plan.links, json);
    plans.push_back(std::move(json));
  }
  return plans;
}

void AddHistory(const ShownRun& run, Json& json) {
  const RunHistory& history = run.history;
  json["plans"] = PlansJson(history);
  Json slices = Json::array();
  for (const BusyHistory::Slice& slice : history.busy.slices()) {
    slices.push_back({{"end_s", slice.end_s},
                      {"seconds", slice.seconds},
                      {"generation", slice.generation},
                      {"busy", slice.busy},
                      {"forward", slice.forward},
                      {"backward", slice.backward},
                      {"wait", slice.wait},
                      {"send", slice.send}});
  }
  json["busy"] = std::move(slices);
  Json losses = Json::array();
  for (const LossCurve::Point& point : history.loss.points())
    losses.push_back({point.step, point.mean, point.low, point.high});
  json["losses"] = std::move(losses);
  Json evaluations = Json::array();
  for (const EvaluationSummary& one : history.evaluations)
    evaluations.push_back({one.step, one.accuracy, one.loss});
  json["evaluations"] = std::move(evaluations);
  Json events = Json::array();
  for (const RunEvent& event : history.log.events()) {
    Json one{{"kind", std::string(Name(event.kind))},
             {"step", event.step},
             {"unix_s", event.unix_s},
             {"what", event.what}};
    SetText("why", event.why, one);
    SetText("remedy", RemedyOf(event, run.facts), one);
    events.push_back(std::move(one));
  }
  json["events"] = std::move(events);
}

}  // namespace

std::string StateJson(const ShownRun& run) {
  const RunFigures figures =
      SummariseStages(run.view.plan, run.view.stages, run.view.plan_ns, run.view.stage_samples);
  Json json = Json::object();
  AddRun(run, json);
  json["join"] = JoinJson(run);
  json["workers"] = WorkersJson(run);
  json["stages"] = StagesJson(run.view, figures);
  json["links"] = LinksJson(run.view, figures);
  Set("bubble_share", BubbleShare(run.view), json);
  if (const GridBits& bits = run.view.grid_bits; bits.forward > 0)
    json["grid_bits"] = GridBitsText(bits);
  if (!run.view.gates.empty()) json["gates"] = ToJson(run.view.gates);
  if (!run.view.gate_targets.empty()) json["gate_targets"] = ToJson(run.view.gate_targets);
  AddHistory(run, json);
  return DumpJson(json);
}

}  // namespace runnel
