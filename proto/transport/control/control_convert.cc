#include "proto/transport/control/control_convert.h"

#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/worker_name.h"
#include "proto/transport/control/control_fields.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {
namespace {

using google::protobuf::Message;

// The field of FromWorker and FromCentral that each message is, in the order of the variants.
constexpr const char* kFromWorker[] = {
    "hello",           "profile_report",   "stage_ready",    "barrier_reached", "snapshot",
    "evaluation_done", "telemetry",        "stage_failed",   "layers_fetched",  "stage_prepared",
    "profile_failed",  "profile_progress", "way_measured",   "probe_piece",     "leaving",
    "heartbeat",       "replicated",       "program_report", "processor_list",  "dry_run_done",
    "trace_report"};
static_assert(std::size(kFromWorker) == std::variant_size_v<WorkerMessage>);
constexpr const char* kFromCentral[] = {
    "welcome",          "refused",          "profile_request", "prepare_stage",   "run_until",
    "snapshot_request", "evaluate_request", "release",         "fetch_layers",    "commit_plan",
    "abort_plan",       "probe_piece",      "replicate",       "commit_replicas", "relay_wanted",
    "program_request",  "awaiting",         "dry_run_request", "trace_request"};
static_assert(std::size(kFromCentral) == std::variant_size_v<CentralMessage>);

// ---- what the fields of a message owe each other, one overload a message

template <typename T>
absl::Status CheckTogether(const T&) {
  return absl::OkStatus();
}

absl::Status CheckTogether(const ProbePiece& piece) {
  return CheckRange("probe_piece.index", piece.index, 0, piece.count - 1);
}

absl::Status CheckTogether(const WorkerHello& hello) {
  for (size_t i = 0; i < hello.codecs.size(); ++i) {
    const std::string at = absl::StrCat("hello.codecs[", i, "]");
    const ParameterRange& parameter = hello.codecs[i].parameter;
    const auto highest = std::numeric_limits<double>::max();
    RUNNEL_RETURN_IF_ERROR(CheckReal(at + ".max", parameter.max, parameter.min, highest));
    const bool counts = parameter.kind == ParameterRange::Kind::kInteger;
    RUNNEL_RETURN_IF_ERROR(CheckReal(at + ".step", parameter.step, counts ? 1 : 0, highest));
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const ProfileReport& report) {
  const auto measured = static_cast<int64_t>(report.layer_seconds.size());
  RUNNEL_RETURN_IF_ERROR(CheckCount(
      "profile_report.spreads", static_cast<int64_t>(report.spreads.size()), measured, measured));
  return CheckReal("profile_report.costs.input_gradient_share", report.costs.input_gradient_share,
                   0, 1 - report.costs.forward_share);
}

// Another device would train on with them. A snapshot of a model that diverged is no error.
absl::Status CheckTogether(const LayersFetched& fetched) {
  return CheckFinite("layers_fetched.state", fetched.state);
}

absl::Status CheckTogether(const EvaluationDone& done) {
  const int64_t most = done.samples * kMaxLabelsPerSample;
  const ClassCounts& counts = done.counts;
  RUNNEL_RETURN_IF_ERROR(CheckRange("evaluation_done.correct", done.correct, 0, most));
  RUNNEL_RETURN_IF_ERROR(CheckRange("evaluation_done.counts.labels", counts.labels, 0, most));
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("evaluation_done.counts.among_five", counts.among_five, 0, counts.labels));
  if (counts.confusion.empty()) return absl::OkStatus();
  int64_t sum = 0;  // of at most 16384 counts of at most 2^40
  for (const int64_t count : counts.confusion) sum += count;
  return CheckRange("evaluation_done.counts.confusion, their sum", sum, counts.labels,
                    counts.labels);
}

absl::Status CheckTogether(const Telemetry& telemetry) {
  return CheckRange("telemetry.correct", telemetry.correct, 0,
                    telemetry.loss_samples * kMaxLabelsPerSample);
}

// A range of a model with so many layers.
absl::Status CheckLayers(const std::string& at, const LayerRange& range, int layers) {
  RUNNEL_RETURN_IF_ERROR(CheckRange(at + ".last_layer", range.last_layer, 0, layers - 1));
  return CheckRange(at + ".first_layer", range.first_layer, 0, range.last_layer);
}

absl::Status CheckTogether(const ProgramReport& report) {
  return CheckLayers("program_report.layers",
                     {report.listing.first_layer, report.listing.last_layer}, kMaxLayers);
}

absl::Status CheckTogether(const ProgramRequest& request) {
  return CheckLayers("program_request.layers", request.layers, request.model.layer_count());
}

absl::Status CheckTogether(const ProfileRequest& request) {
  for (const LayerRange& range : request.ranges) {
    RUNNEL_RETURN_IF_ERROR(
        CheckLayers("profile_request.ranges", range, request.model.layer_count()));
  }
  if (request.in_flight.empty()) return absl::OkStatus();
  const auto ranges = static_cast<int64_t>(request.ranges.size());
  return CheckCount("profile_request.in_flight", static_cast<int64_t>(request.in_flight.size()),
                    ranges, ranges);
}

absl::Status CheckTogether(const FetchLayers& fetch) {
  int next = 0;
  for (const LayerRange& range : fetch.ranges) {
    constexpr int64_t kLast = std::numeric_limits<int32_t>::max() - 1;
    RUNNEL_RETURN_IF_ERROR(
        CheckRange("fetch_layers.ranges.first_layer", range.first_layer, next, kLast));
    RUNNEL_RETURN_IF_ERROR(
        CheckRange("fetch_layers.ranges.last_layer", range.last_layer, range.first_layer, kLast));
    next = range.last_layer + 1;
  }
  return absl::OkStatus();
}

absl::Status CheckTogether(const PrepareStage& prepare) {
  RUNNEL_RETURN_IF_ERROR(CheckPlan(prepare.plan, prepare.model));
  const auto stages = static_cast<int>(prepare.plan.stages.size());
  RUNNEL_RETURN_IF_ERROR(CheckRange("prepare_stage.stage", prepare.stage, 0, stages - 1));
  if (prepare.plain_loop && stages != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("prepare_stage.plain_loop: the plan has ", stages, " stages, not 1"));
  }
  if (prepare.draws_state && !prepare.state.layers.empty())
    return absl::InvalidArgumentError("prepare_stage.draws_state: and the state has layers");
  return CheckNamed("prepare_stage.changes", CheckTrainingChanges(prepare.changes));
}

absl::Status CheckTogether(const RunUntil& grant) {
  return CheckNamed("run_until.changes", CheckTrainingChanges(grant.changes));
}

// ---- a message of either direction

template <typename Wire, typename Variant, size_t N>
Wire Write(Variant message, const char* const (&names)[N]) {
  Wire wire;
  Message& to = PutChild({&wire, FieldNamed(wire, names[message.index()])});
  FieldWriter list(to);
  std::visit([&list](auto& alternative) { ListFields(list, alternative); }, message);
  return wire;
}

template <typename T, typename Variant>
absl::StatusOr<Variant> ReadAs(Message& wire, const char* name) {
  RUNNEL_ASSIGN_OR_RETURN(T message, ReadFields<T>(wire, {name}));
  RUNNEL_RETURN_IF_ERROR(CheckTogether(message));
  return message;
}

// The alternative of this index.
template <typename Variant, size_t I = 0>
absl::StatusOr<Variant> ReadAlternative(size_t index, Message& wire, const char* name) {
  if constexpr (I + 1 < std::variant_size_v<Variant>) {
    if (index > I) return ReadAlternative<Variant, I + 1>(index, wire, name);
  }
  return ReadAs<std::variant_alternative_t<I, Variant>, Variant>(wire, name);
}

template <typename Variant, size_t N>
absl::StatusOr<Variant> Read(Message& wire, const char* const (&names)[N], const char* reader) {
  const google::protobuf::Reflection* reflection = wire.GetReflection();
  const google::protobuf::FieldDescriptor* set =
      reflection->GetOneofFieldDescriptor(wire, wire.GetDescriptor()->oneof_decl(0));
  for (size_t i = 0; set != nullptr && i < N; ++i) {
    if (set->name() == names[i])
      return ReadAlternative<Variant>(i, *reflection->MutableMessage(&wire, set), names[i]);
  }
  return absl::InvalidArgumentError(absl::StrCat("message: is none that ", reader, " knows"));
}

}  // namespace

proto::FromWorker ToProto(WorkerMessage message) {
  return Write<proto::FromWorker>(std::move(message), kFromWorker);
}

proto::FromCentral ToProto(CentralMessage message) {
  return Write<proto::FromCentral>(std::move(message), kFromCentral);
}

absl::StatusOr<WorkerMessage> FromProto(proto::FromWorker message) {
  if (message.has_hello()) {
    // Of any version: a refusal names the worker.
    RUNNEL_RETURN_IF_ERROR(CheckWorkerName("hello.name", message.hello().name()));
    if (const int32_t version = message.hello().protocol_version(); version != kProtocolVersion) {
      WorkerHello hello{.name = message.hello().name()};
      hello.protocol_version = version;
      return hello;
    }
    if (const std::string& site = message.hello().site(); !site.empty())
      RUNNEL_RETURN_IF_ERROR(CheckWorkerName("hello.site", site));
  }
  return Read<WorkerMessage>(message, kFromWorker, "central");
}

absl::StatusOr<CentralMessage> FromProto(proto::FromCentral message) {
  return Read<CentralMessage>(message, kFromCentral, "a worker");
}

}  // namespace runnel
