#include "central/records/summary.h"

#include <unistd.h>

#include <numeric>

#include "central/records/figure_json.h"
#include "central/records/gate_json.h"
#include "central/records/plan_json.h"
#include "proto/base/training/recipe_family.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

Json ToJson(const LinkSummary& link) {
  Json json{{"codec_forward", link.codec_forward}, {"codec_backward", link.codec_backward}};
  AddFigures(FiguresOf(link), /*for_page=*/false, json);
  json["relayed"] = link.relayed;
  return json;
}

Json ToJson(const PlanBandwidth::Link& link) {
  return Json{{"forward_mbps", link.forward.mbps()},
              {"backward_mbps", link.backward.mbps()},
              {"delay_ms", link.delay_seconds * 1e3}};
}

Json ToJson(const PeriodComparison::Stage& stage) {
  return Json{{"measured_s", stage.measured_seconds}, {"predicted_s", stage.predicted_seconds}};
}

Json ToJson(const PeriodComparison::Link& link) {
  return Json{{"measured", ToJson(link.measured)}, {"predicted", ToJson(link.predicted)}};
}

Json ToJson(const StageSummary& stage) {
  Json json{{"numerics_class", stage.numerics_class}};
  AddFigures(FiguresOf(stage), /*for_page=*/false, json);
  if (stage.seconds.predicted > 0) json["predicted_s"] = stage.seconds.predicted;
  if (stage.seconds.measured > 0) json["measured_s"] = stage.seconds.measured;
  return json;
}

// Of all stages together, where the table says so.
void AddFiguresOfRun(const std::vector<StageSummary>& stages, Json& json) {
  for (const StageSummary& stage : stages) {
    std::vector<ShownFigure> figures = FiguresOf(stage);
    std::erase_if(figures, [](const ShownFigure& figure) { return !figure.view->of_run; });
    AddFigures(figures, /*for_page=*/false, json);
  }
  json.erase("energy");  // of several sources
}

Json ToJson(const EvaluationSummary& evaluation) {
  Json json{
      {"step", evaluation.step}, {"accuracy", evaluation.accuracy}, {"loss", evaluation.loss}};
  if (evaluation.effective_macs > 0) json["effective_macs"] = evaluation.effective_macs;
  return json;
}

Json ToJson(const RecoverySummary& recovery) {
  constexpr double kNotReached = -1;
  return Json{{"step", recovery.step},
              {"workers", recovery.workers},
              {"source", recovery.source},
              {"detect_s", recovery.detect_s.value_or(kNotReached)},
              {"plan_s", recovery.plan_s.value_or(kNotReached)},
              {"fetch_s", recovery.fetch_s.value_or(kNotReached)},
              {"first_gradient_s", recovery.first_gradient_s.value_or(kNotReached)},
              {"caught_up_s", recovery.caught_up_s.value_or(kNotReached)}};
}

Json ToJson(const ReplicationSummary& replication) {
  return Json{{"count", replication.count},   {"skipped", replication.skipped},
              {"step", replication.step},     {"stall_s", replication.stall_s},
              {"took_s", replication.took_s}, {"bytes", replication.bytes}};
}

Json ToJson(const NoiseSummary& noise) {
  return Json{{"step", noise.step},
              {"added", noise.added},
              {"by_table", noise.by_table},
              {"scale_samples", noise.scale_samples},
              {"micro_batches", noise.micro_batches},
              {"seconds", noise.seconds},
              {"codecs", noise.codecs},
              {"is_way", noise.is_way}};
}

Json ToJson(const TimelinePoint& point) {
  return Json{{"batches", point.batches}, {"seconds", point.seconds}};
}

// "top_5", "classes" and "confusion", as far as they were counted.
void AddClasses(const ClassCounts& counts, const std::vector<std::string>& names, Json& json) {
  if (counts.labels == 0) return;
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  json["top_5"] = share(counts.among_five, counts.labels);
  const size_t classes = names.size();
  if (counts.confusion.size() != classes * classes) return;
  Json rows = Json::array(), matrix = Json::array();
  for (size_t c = 0; c < classes; ++c) {
    const auto first = counts.confusion.begin() + static_cast<ptrdiff_t>(c * classes);
    const std::vector<int64_t> row(first, first + static_cast<ptrdiff_t>(classes));
    const int64_t labels = std::accumulate(row.begin(), row.end(), int64_t{0});
    Json one{{"name", names[c]}, {"labels", labels}};
    if (labels > 0) one["accuracy"] = share(row[c], labels);
    rows.push_back(std::move(one));
    matrix.push_back(row);
  }
  json["classes"] = std::move(rows);
  json["confusion"] = std::move(matrix);
}

template <typename T>
Json ListToJson(const std::vector<T>& rows) {
  Json list = Json::array();
  for (const T& row : rows) list.push_back(ToJson(row));
  return list;
}

// Numerics class of products that a processor could compute on codes, and here are FP32's.
constexpr char kEmulated[] = "emulated";

// Whether the products of the recipe are those of rounded floats.
bool IsEmulated(const std::string& recipe) {
  const absl::StatusOr<RecipeName> name = ParseRecipeName(recipe);
  return name.ok() && name->family->is_emulated;
}

Json PrecisionToJson(const std::string& setting, const PrecisionCost& cost) {
  if (cost.gates_learn) return Json{{"setting", setting}, {"macs_in_full", cost.macs_in_full}};
  Json levels = Json::array();
  for (const PrecisionCost::Level& level : cost.levels) {
    Json row = Json::object();
    if (level.bits.forward > 0) row["bits"] = GridBitsText(level.bits);
    row["steps"] = level.steps;
    row["effective_share"] = level.effective_share;
    levels.push_back(std::move(row));
  }
  return Json{{"setting", setting},
              {"effective_share", cost.effective_share()},
              {"share_of_8_8", cost.share_of_8_8()},
              {"macs_done", cost.macs_done},
              {"macs_in_full", cost.macs_in_full},
              {"effective_macs", ToJson(cost.effective)},
              {"turns", cost.turns},
              {"levels", std::move(levels)}};
}

}  // namespace

std::string SummaryToJson(const RunSummary& summary) {
  Json json{
      {"accuracy", summary.accuracy},
      {"loss", summary.loss},
      {"train_loss", summary.train_loss},
      {"samples_per_s", summary.samples_per_s},
      {"central_processor_share", summary.central_processor_share},
      {"wall_s", summary.wall_s},
      {"weights_sha256", summary.weights_sha256},
      {"steps", summary.steps},
      {"epochs", summary.epochs},
      {"model", summary.model},
      {"dataset", summary.dataset},
      {"schedule", summary.schedule},
      {"policy", summary.policy},
      {"cost", summary.cost},
      {"seed", summary.seed},
      {"recipe", summary.recipe},
      {"codecs", Json{{"forward", summary.codec_forward}, {"backward", summary.codec_backward}}},
      {"plan", Json{{"stages", StagesToJson(summary.plan, summary.device_names)}}},
      {"plan_bandwidth", Json{{"source", summary.plan_bandwidth.source},
                              {"links", ListToJson(summary.plan_bandwidth.links)}}},
      {"plan_searches", Json{{"done", summary.searches.done},
                             {"skipped", summary.searches.skipped},
                             {"processor_s", summary.searches.processor_seconds}}},
      {"links", ListToJson(summary.links)},
      {"stages", ListToJson(summary.stages)},
      {"evaluations", ListToJson(summary.evaluations)},
      {"recoveries", ListToJson(summary.recoveries)},
      {"replication", ToJson(summary.replication)},
      {"timeline", ListToJson(summary.timeline)}};
  if (summary.period.predicted_seconds > 0) {
    json["period"] = Json{{"step", summary.period.step},
                          {"measured_s", summary.period.measured_seconds},
                          {"predicted_s", summary.period.predicted_seconds},
                          {"cause", summary.period.cause},
                          {"stages", ListToJson(summary.period.stages)},
                          {"links", ListToJson(summary.period.links)}};
  }
  AddFiguresOfRun(summary.stages, json);
  if (summary.predicted_samples_per_s > 0)
    json["predicted_samples_per_s"] = summary.predicted_samples_per_s;
  if (!summary.predictor.empty()) json["predictor"] = summary.predictor;
  if (!summary.gradient_bits.empty()) json["gradient_bits"] = summary.gradient_bits;
  if (!summary.gradient_noise.empty()) json["gradient_noise"] = ListToJson(summary.gradient_noise);
  if (!summary.evaluations.empty())
    AddClasses(summary.evaluations.back().counts, summary.class_names, json);
  if (summary.test.has_value()) {
    json["test"] = ToJson(*summary.test);
    AddClasses(summary.test->counts, summary.class_names, json["test"]);
  }
  if (summary.stopped_early) json["stopped_early"] = true;
  if (summary.loss_scale > 0) json["loss_scale"] = summary.loss_scale;
  if (summary.precision.has_value())
    json["precision"] = PrecisionToJson(summary.precision_setting, *summary.precision);
  if (summary.gates.has_value()) json["precision"]["gates"] = ToJson(*summary.gates);
  if (IsEmulated(summary.recipe)) {
    json["products"] = kEmulated;
    if (summary.precision.has_value()) json["precision"]["products"] = kEmulated;
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status WriteSummary(const RunSummary& summary, const std::string& path) {
  const std::string json = SummaryToJson(summary);
  if (path == "-") return WriteAll(STDOUT_FILENO, json, "standard output");
  return WriteFileAtomically(path, {json});
}

}  // namespace runnel
