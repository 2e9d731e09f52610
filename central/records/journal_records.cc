// Journal records <-> JSON lines.

#include "absl/strings/str_cat.h"
#include "central/records/journal.h"
#include "central/records/plan_json.h"
#include "central/settings/setting_json.h"
#include "proto/base/status_macros.h"
#include "proto/json/json_fields.h"

namespace runnel {
namespace {

Json ToJson(const DeviceCosts& costs) {
  return {{"forward_share", costs.forward_share},
          {"input_gradient_share", costs.input_gradient_share},
          {"coder_seconds_per_byte", costs.coder_seconds_per_byte},
          {"frame_seconds", costs.frame_seconds},
          {"link_byte_seconds", costs.link_byte_seconds}};
}

absl::StatusOr<DeviceCosts> CostsFromJson(const Json& json) {
  DeviceCosts costs;
  JsonObject object(json, "costs");
  object.Read("forward_share", costs.forward_share)
      .Read("input_gradient_share", costs.input_gradient_share)
      .Read("coder_seconds_per_byte", costs.coder_seconds_per_byte)
      .Read("frame_seconds", costs.frame_seconds)
      .Read("link_byte_seconds", costs.link_byte_seconds);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return costs;
}

Json ToJson(const JournalDevice& device) {
  Json json{{"name", device.name}, {"numerics_class", device.numerics_class}};
  if (!device.times.empty())
    json[device.times.by_range() ? "range_seconds" : "layer_seconds"] = device.times.figures();
  if (device.processor_share < 1) json["processor_share"] = device.processor_share;
  if (device.costs != DeviceCosts()) json["costs"] = ToJson(device.costs);
  if (!device.backend_options.empty()) json["backend_options"] = device.backend_options;
  if (device.on_host) json["on_host"] = true;
  return json;
}

absl::StatusOr<JournalDevice> DeviceFromJson(const Json& json) {
  JournalDevice device;
  JsonObject object(json, "device");
  object.Read("name", device.name).Read("numerics_class", device.numerics_class);
  std::vector<double> seconds;
  if (json.is_object() && json.contains("layer_seconds")) {
    object.Read("layer_seconds", seconds);
    device.times = DeviceTimes::ByLayer(seconds);
  }
  if (json.is_object() && json.contains("range_seconds")) {
    object.Read("range_seconds", seconds);
    const std::optional<DeviceTimes> times = DeviceTimes::ByRange(seconds);
    if (times.has_value()) device.times = *times;
    if (!times.has_value())
      object.Note(absl::InvalidArgumentError(absl::StrCat("device: range_seconds: no model has ",
                                                          seconds.size(), " ranges of layers")));
  }
  if (json.is_object() && json.contains("processor_share")) {
    object.Read("processor_share", device.processor_share);
  }
  if (json.is_object() && json.contains("backend_options"))
    object.Read("backend_options", device.backend_options);
  if (json.is_object() && json.contains("on_host")) object.Read("on_host", device.on_host);
  if (json.is_object() && json.contains("costs")) {
    if (const Json* costs = object.Find("costs")) {
      absl::StatusOr<DeviceCosts> read = CostsFromJson(*costs);
      if (read.ok()) device.costs = *read;
      object.Note(read.status());
    }
  }
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return device;
}

Json ToJson(const WayNoise& way) {
  return Json{{"link", way.link},         {"layer", way.layer},      {"forward", way.forward},
              {"backward", way.backward}, {"codecs", way.codecs},    {"by_table", way.by_table},
              {"added", way.added},       {"measured", way.measured}};
}

// Fills the fields of a record into an object that has "record" and "version" already.
struct Writer {
  Json& json;

  void operator()(const RunStarted& r) {
    json["record"] = "run_started";
    json["settings"] = RunSettingsToJson(r.settings);
    json["model"] = r.model;
    json["model_sha256"] = r.model_sha256;
    json["training"] = TrainingToJson(r.training);
  }
  void operator()(const RunResumed& r) {
    json["record"] = "run_resumed";
    json["step"] = r.step;
    json["checkpoint"] = r.checkpoint;
    if (r.epochs > 0) json["epochs"] = r.epochs;
  }
  void operator()(const LinksKnown& r) {
    json["record"] = "links";
    json["ways"] = Json::array();
    for (const LinksKnown::Way& way : r.ways) {
      json["ways"].push_back({{"from", way.from.value()},
                              {"to", way.to.value()},
                              {"mbps", way.mbps},
                              {"delay_ms", way.delay_ms.value_or(-1)},
                              {"given", way.given}});
    }
    json["media"] = Json::array();
    for (const LinksKnown::Medium& medium : r.media) {
      Json devices = Json::array();
      for (const DeviceId device : medium.devices) devices.push_back(device.value());
      json["media"].push_back({{"devices", std::move(devices)},
                               {"mbps", medium.mbps},
                               {"half_duplex", medium.half_duplex}});
    }
  }
  void operator()(const PlanDecided& r) {
    json["record"] = "plan";
    json["from_step"] = r.from_step;
    json["plan"] = PlanToJson(r.plan);
    json["devices"] = Json::array();
    for (const JournalDevice& device : r.devices) json["devices"].push_back(ToJson(device));
  }
  void operator()(const TrainingChanged& r) {
    json["record"] = "training_change";
    json["from_step"] = r.change.from_step;
    json[r.change.dial] = r.change.value;
    json["why"] = r.why;
  }
  void operator()(const SubModelsMeasured& r) {
    json["record"] = "measurement";
    json["step"] = r.step;
    json["device"] = r.device.value();
    json["name"] = r.name;
    json["sub_models"] = Json::array();
    for (const SubModelsMeasured::SubModel& one : r.sub_models) {
      json["sub_models"].push_back({{"first_layer", one.range.first_layer},
                                    {"last_layer", one.range.last_layer},
                                    {"seconds", one.seconds}});
    }
  }
  void operator()(const BarrierPassed& r) {
    json["record"] = "barrier";
    json["step"] = r.step;
  }
  void operator()(const CheckpointWritten& r) {
    json["record"] = "checkpoint";
    json["step"] = r.step;
    json["path"] = r.path;
  }
  void operator()(const EvaluationRecorded& r) {
    json["record"] = "evaluation";
    json["step"] = r.step;
    json["accuracy"] = r.accuracy;
    json["loss"] = r.loss;
  }
  void operator()(const NoiseMeasured& r) {
    json["record"] = "gradient_noise";
    json["step"] = r.step;
    json["added"] = r.added;
    json["by_table"] = r.by_table;
    json["scale_samples"] = r.scale_samples;
    json["micro_batches"] = r.micro_batches;
    json["loss"] = r.loss;
    json["seconds"] = r.seconds;
    json["codecs"] = r.codecs;
    if (r.ways.empty()) return;
    json["ways"] = Json::array();
    for (const WayNoise& way : r.ways) json["ways"].push_back(ToJson(way));
    if (r.way.has_value()) json["way"] = *r.way;
  }
  void operator()(const WorkerLost& r) {
    json["record"] = "worker_lost";
    json["step"] = r.step;
    json["device"] = r.device.value();
    json["name"] = r.name;
    json["reason"] = r.reason;
  }
  void operator()(const Recovered& r) {
    json["record"] = "recovered";
    json["step"] = r.step;
    json["workers"] = r.workers;
  }
  void operator()(const RunStopped& r) {
    json["record"] = "stopped";
    json["step"] = r.step;
    json["reason"] = r.reason;
  }
  void operator()(const RunFinished& r) {
    json["record"] = "finished";
    json["step"] = r.step;
    json["weights_sha256"] = r.weights_sha256;
  }
};

absl::StatusOr<JournalRecord> ReadRunStarted(JsonObject& object) {
  RunStarted r;
  object.Read("model", r.model).Read("model_sha256", r.model_sha256);
  if (const Json* settings = object.Find("settings")) {
    RUNNEL_ASSIGN_OR_RETURN(r.settings, SettingsFromJson(DumpJson(*settings)));
  }
  if (const Json* training = object.Find("training")) {
    RUNNEL_ASSIGN_OR_RETURN(r.training, TrainingFromJson(*training));
  }
  return r;
}

absl::StatusOr<JournalRecord> ReadRunResumed(JsonObject& object) {
  RunResumed r;
  object.Read("step", r.step).Read("checkpoint", r.checkpoint);
  if (object.NextKey() == "epochs") object.Read("epochs", r.epochs);
  return r;
}

absl::StatusOr<JournalRecord> ReadLinks(JsonObject& object) {
  LinksKnown r;
  for (const Json& json : object.Array("ways")) {
    LinksKnown::Way way;
    int32_t from = 0, to = 0;
    JsonObject one(json, "way");
    one.Read("from", from)
        .Read("to", to)
        .Read("mbps", way.mbps)
        .Read("delay_ms", way.delay_ms.emplace())
        .Read("given", way.given);
    RUNNEL_RETURN_IF_ERROR(one.Finish());
    if (way.delay_ms < 0) way.delay_ms.reset();
    way.from = DeviceId(from);
    way.to = DeviceId(to);
    r.ways.push_back(way);
  }
  for (const Json& json : object.Array("media")) {
    LinksKnown::Medium medium;
    std::vector<int64_t> devices;
    JsonObject one(json, "medium");
    one.Read("devices", devices).Read("mbps", medium.mbps).Read("half_duplex", medium.half_duplex);
    RUNNEL_RETURN_IF_ERROR(one.Finish());
    for (const int64_t device : devices) medium.devices.emplace_back(static_cast<int32_t>(device));
    r.media.push_back(std::move(medium));
  }
  return r;
}

absl::StatusOr<JournalRecord> ReadPlan(JsonObject& object) {
  PlanDecided r;
  object.Read("from_step", r.from_step);
  if (const Json* plan = object.Find("plan")) {
    RUNNEL_ASSIGN_OR_RETURN(r.plan, PlanFromJson(*plan));
  }
  for (const Json& device : object.Array("devices")) {
    RUNNEL_ASSIGN_OR_RETURN(JournalDevice read, DeviceFromJson(device));
    r.devices.push_back(std::move(read));
  }
  for (const int device : r.plan.devices()) {
    if (static_cast<size_t>(device) < r.devices.size()) continue;
    object.Note(absl::InvalidArgumentError(
        absl::StrCat("device ", device, " of the plan is not among the devices")));
  }
  return r;
}

absl::StatusOr<JournalRecord> ReadTrainingChange(JsonObject& object) {
  TrainingChanged r;
  object.Read("from_step", r.change.from_step).Read("why", r.why);
  r.change.dial = object.NextKey();
  if (r.change.dial.empty()) return absl::InvalidArgumentError("training_change: names no dial");
  object.Read(r.change.dial, r.change.value);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  RUNNEL_RETURN_IF_ERROR(CheckTrainingChanges({r.change}));
  return r;
}

absl::StatusOr<JournalRecord> ReadMeasurement(JsonObject& object) {
  SubModelsMeasured r;
  int32_t device = 0;
  object.Read("step", r.step).Read("device", device).Read("name", r.name);
  r.device = DeviceId(device);
  for (const Json& json : object.Array("sub_models")) {
    SubModelsMeasured::SubModel one;
    JsonObject sub_model(json, "sub_model");
    sub_model.Read("first_layer", one.range.first_layer)
        .Read("last_layer", one.range.last_layer)
        .Read("seconds", one.seconds);
    RUNNEL_RETURN_IF_ERROR(sub_model.Finish());
    r.sub_models.push_back(one);
  }
  return r;
}

absl::StatusOr<JournalRecord> ReadBarrier(JsonObject& object) {
  BarrierPassed r;
  object.Read("step", r.step);
  return r;
}

absl::StatusOr<JournalRecord> ReadCheckpointWritten(JsonObject& object) {
  CheckpointWritten r;
  object.Read("step", r.step).Read("path", r.path);
  return r;
}

absl::StatusOr<JournalRecord> ReadEvaluation(JsonObject& object) {
  EvaluationRecorded r;
  object.Read("step", r.step).Measurement("accuracy", r.accuracy).Measurement("loss", r.loss);
  return r;
}

absl::StatusOr<WayNoise> ReadWayNoise(const Json& json) {
  WayNoise way;
  JsonObject object(json, "way");
  object.Read("link", way.link)
      .Read("layer", way.layer)
      .Read("forward", way.forward)
      .Read("backward", way.backward)
      .Read("codecs", way.codecs)
      .Read("by_table", way.by_table)
      .Read("added", way.added)
      .Read("measured", way.measured);
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  return way;
}

absl::StatusOr<JournalRecord> ReadNoise(JsonObject& object) {
  NoiseMeasured r;
  object.Read("step", r.step)
      .Measurement("added", r.added)
      .Read("by_table", r.by_table)
      .Read("scale_samples", r.scale_samples)
      .Read("micro_batches", r.micro_batches)
      .Measurement("loss", r.loss)
      .Read("seconds", r.seconds)
      .Read("codecs", r.codecs);
  if (object.NextKey() == "ways") {
    for (const Json& json : object.Array("ways")) {
      RUNNEL_ASSIGN_OR_RETURN(WayNoise way, ReadWayNoise(json));
      r.ways.push_back(std::move(way));
    }
  }
  if (object.NextKey() == "way") object.Read("way", r.way.emplace());
  if (r.way.has_value() && (*r.way < 0 || *r.way >= static_cast<int64_t>(r.ways.size())))
    return absl::InvalidArgumentError("way is none of the ways");
  return r;
}

absl::StatusOr<JournalRecord> ReadWorkerLost(JsonObject& object) {
  WorkerLost r;
  int32_t device = 0;
  object.Read("step", r.step).Read("device", device).Read("name", r.name).Read("reason", r.reason);
  r.device = DeviceId(device);
  return r;
}

absl::StatusOr<JournalRecord> ReadRecovered(JsonObject& object) {
  Recovered r;
  object.Read("step", r.step);
  for (const Json& json : object.Array("workers"))
    RUNNEL_RETURN_IF_ERROR(ReadValue(json, "workers", r.workers.emplace_back()));
  return r;
}

absl::StatusOr<JournalRecord> ReadStopped(JsonObject& object) {
  RunStopped r;
  object.Read("step", r.step).Read("reason", r.reason);
  return r;
}

absl::StatusOr<JournalRecord> ReadFinished(JsonObject& object) {
  RunFinished r;
  object.Read("step", r.step).Read("weights_sha256", r.weights_sha256);
  return r;
}

// Each takes the fields from an object whose "record" and "version" are read.
constexpr struct {
  const char* name;
  absl::StatusOr<JournalRecord> (*read)(JsonObject& object);
} kReaders[] = {
    {"run_started", ReadRunStarted},
    {"run_resumed", ReadRunResumed},
    {"links", ReadLinks},
    {"plan", ReadPlan},
    {"training_change", ReadTrainingChange},
    {"measurement", ReadMeasurement},
    {"barrier", ReadBarrier},
    {"checkpoint", ReadCheckpointWritten},
    {"evaluation", ReadEvaluation},
    {"gradient_noise", ReadNoise},
    {"worker_lost", ReadWorkerLost},
    {"recovered", ReadRecovered},
    {"stopped", ReadStopped},
    {"finished", ReadFinished},
};

absl::Status CheckVersion(const Json& json) {
  int64_t version = 0;
  const auto at = json.find("version");
  if (at == json.end()) return absl::InvalidArgumentError("'version' is missing");
  RUNNEL_RETURN_IF_ERROR(ReadValue(*at, "version", version));
  if (version >= kOldestJournalVersion && version <= kJournalVersion) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("version ", version, " is not known, this reads ",
                                                 kOldestJournalVersion, " to ", kJournalVersion));
}

}  // namespace

std::string JournalLine(const JournalRecord& record) {
  Json json{{"record", ""}, {"version", kJournalVersion}};
  std::visit(Writer{json}, record);
  return DumpJson(json);
}

absl::StatusOr<JournalRecord> ParseJournalLine(absl::string_view line) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(line));
  if (!json.is_object()) return absl::InvalidArgumentError("is no JSON object");
  RUNNEL_RETURN_IF_ERROR(CheckVersion(json));
  std::string kind;
  if (!json.contains("record")) return absl::InvalidArgumentError("'record' is missing");
  RUNNEL_RETURN_IF_ERROR(ReadValue(json["record"], "record", kind));
  for (const auto& row : kReaders) {
    if (kind != row.name) continue;
    int64_t version = 0;
    JsonObject object(json, kind);
    object.Read("record", kind).Read("version", version);
    RUNNEL_ASSIGN_OR_RETURN(JournalRecord record, row.read(object));
    RUNNEL_RETURN_IF_ERROR(object.Finish());
    return record;
  }
  return absl::InvalidArgumentError(absl::StrCat("record '", kind, "' is not known"));
}

}  // namespace runnel
