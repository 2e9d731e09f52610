#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/control_convert.h"
#include "proto/transport/control/model_convert.h"
#include "proto/transport/control/processor_convert.h"
#include "proto/transport/control/replica_convert.h"
#include "proto/transport/control/stage_failed_convert.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {
namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxListed = 256;
constexpr double kMaxSeconds = 1e9;
constexpr int64_t kMaxNs = int64_t{1} << 56;  // two years: multiples of it still fit
constexpr double kMaxCost = 60;               // seconds, of a frame or a byte
constexpr double kMaxBytesPerSecond = 1e15;
constexpr double kMaxJoules = 1e15;

// ---- vocabulary -> messages, one overload a message

proto::CodecFamily ToProto(const CodecFamily& from) {
  proto::CodecFamily family;
  family.set_name(from.name);
  family.set_kind(static_cast<uint32_t>(from.parameter.kind));
  family.set_min(from.parameter.min);
  family.set_max(from.parameter.max);
  family.set_step(from.parameter.step);
  return family;
}

void Fill(WorkerHello& from, proto::FromWorker& to) {
  proto::Hello& hello = *to.mutable_hello();
  hello.set_protocol_version(from.protocol_version);
  hello.set_name(CleanUtf8(from.name, kMaxReasonBytes));
  hello.set_data_address(CleanUtf8(from.data_address, kMaxReasonBytes));
  hello.set_numerics_class(CleanUtf8(from.numerics_class, kMaxReasonBytes));
  hello.mutable_backends()->Assign(from.backends.begin(), from.backends.end());
  hello.mutable_recipes()->Assign(from.recipes.begin(), from.recipes.end());
  for (const CodecFamily& family : from.codecs) *hello.add_codecs() = ToProto(family);
  hello.set_secret(from.secret);
  hello.set_memory_bytes(from.memory_bytes);
  hello.set_device_id(from.device_id);
  hello.set_incarnation(from.incarnation);
  hello.set_backend(CleanUtf8(from.backend, kMaxTextBytes));
  *hello.mutable_processor_list() = ToProto(from.processor_list);
  hello.set_device_class(CleanUtf8(from.device_class, kMaxTextBytes));
}

void Fill(Heartbeat& from, proto::FromWorker& to) {
  to.mutable_heartbeat()->set_phase(static_cast<uint32_t>(from.phase));
  to.mutable_heartbeat()->set_progress(from.progress);
}

void Fill(ProfileReport& from, proto::FromWorker& to) {
  to.mutable_profile_report()->mutable_layer_seconds()->Assign(from.layer_seconds.begin(),
                                                               from.layer_seconds.end());
  to.mutable_profile_report()->mutable_spreads()->Assign(from.spreads.begin(), from.spreads.end());
  to.mutable_profile_report()->set_processor_share(from.processor_share);
  to.mutable_profile_report()->set_kept(from.kept);
  to.mutable_profile_report()->set_generation(from.generation.value());
  proto::DeviceCosts& costs = *to.mutable_profile_report()->mutable_costs();
  costs.set_forward_share(from.costs.forward_share);
  costs.set_input_gradient_share(from.costs.input_gradient_share);
  costs.set_coder_seconds_per_byte(from.costs.coder_seconds_per_byte);
  costs.set_frame_seconds(from.costs.frame_seconds);
  costs.set_link_byte_seconds(from.costs.link_byte_seconds);
  to.mutable_profile_report()->set_backend(CleanUtf8(from.backend, kMaxTextBytes));
  to.mutable_profile_report()->set_choice(CleanUtf8(from.choice, kMaxReasonBytes));
  to.mutable_profile_report()->set_numerics_class(CleanUtf8(from.numerics_class, kMaxTextBytes));
}

void Fill(ProfileProgress& from, proto::FromWorker& to) {
  to.mutable_profile_progress()->set_share(from.share);
  to.mutable_profile_progress()->set_generation(from.generation.value());
}

void Fill(ProbePiece& from, proto::FromWorker& to) {
  to.mutable_probe_piece()->set_index(from.index);
  to.mutable_probe_piece()->set_count(from.count);
  to.mutable_probe_piece()->set_padding(std::move(from.padding));
  to.mutable_probe_piece()->set_answer_bytes(from.answer_bytes);
}

void Fill(Leaving&, proto::FromWorker& to) { to.mutable_leaving(); }

void Fill(WayMeasured& from, proto::FromWorker& to) {
  to.mutable_way_measured()->set_bytes_per_second(from.bytes_per_second);
  to.mutable_way_measured()->set_ns(from.ns);
}

void Fill(StageReady& from, proto::FromWorker& to) {
  to.mutable_stage_ready()->set_generation(from.generation.value());
}

void Fill(BarrierReached& from, proto::FromWorker& to) {
  to.mutable_barrier_reached()->set_generation(from.generation.value());
  to.mutable_barrier_reached()->set_sequence(from.sequence.value());
}

void Fill(Snapshot& from, proto::FromWorker& to) {
  proto::Snapshot& snapshot = *to.mutable_snapshot();
  snapshot.set_generation(from.generation.value());
  snapshot.set_sequence(from.sequence.value());
  *snapshot.mutable_state() = ToProto(std::move(from.state), ZeroTensors::kLeftOut);
}

void Fill(LayersFetched& from, proto::FromWorker& to) {
  to.mutable_layers_fetched()->set_generation(from.generation.value());
  *to.mutable_layers_fetched()->mutable_state() =
      ToProto(std::move(from.state), ZeroTensors::kLeftOut);
}

void Fill(StagePrepared& from, proto::FromWorker& to) {
  to.mutable_stage_prepared()->set_generation(from.generation.value());
  to.mutable_stage_prepared()->set_numerics_class(CleanUtf8(from.numerics_class, kMaxTextBytes));
}

void Fill(Replicated& from, proto::FromWorker& to) {
  *to.mutable_replicated()->mutable_id() = ToProto(from.id);
  to.mutable_replicated()->set_stall_ns(from.stall_ns);
  to.mutable_replicated()->set_took_ns(from.took_ns);
  to.mutable_replicated()->set_bytes(from.bytes);
}

void Fill(EvaluationDone& from, proto::FromWorker& to) {
  proto::EvaluationDone& done = *to.mutable_evaluation_done();
  done.set_generation(from.generation.value());
  done.set_first(from.first.value());
  done.set_loss_sum(from.loss_sum);
  done.set_correct(from.correct);
  done.set_samples(from.samples);
}

void Fill(Telemetry& from, proto::FromWorker& to) {
  proto::Telemetry& telemetry = *to.mutable_telemetry();
  telemetry.set_generation(from.generation.value());
  telemetry.set_forwards(from.forwards);
  telemetry.set_backwards(from.backwards);
  telemetry.set_busy_ns(from.busy_ns);
  telemetry.set_wait_ns(from.wait_ns);
  telemetry.set_codec_ns(from.codec_ns);
  telemetry.set_busy_processor_ns(from.busy_processor_ns);
  telemetry.set_processor_ns(from.processor_ns);
  telemetry.set_last_backward_ns(from.last_backward_ns);
  telemetry.set_peak_rss_bytes(from.peak_rss_bytes);
  telemetry.set_memory_bytes(from.memory_bytes);
  telemetry.set_frames_down(from.frames_down);
  telemetry.set_frames_up(from.frames_up);
  telemetry.set_bytes_down(from.bytes_down);
  telemetry.set_bytes_up(from.bytes_up);
  telemetry.set_raw_bytes_down(from.raw_bytes_down);
  telemetry.set_raw_bytes_up(from.raw_bytes_up);
  telemetry.set_stale_frames_dropped(from.stale_frames_dropped);
  telemetry.set_upstream_bytes_per_second(from.upstream_bytes_per_second);
  telemetry.set_downstream_bytes_per_second(from.downstream_bytes_per_second);
  telemetry.set_upstream_round_trip_ns(from.upstream_round_trip_ns);
  telemetry.set_downstream_round_trip_ns(from.downstream_round_trip_ns);
  telemetry.set_joules(from.joules);
  telemetry.set_energy_source(static_cast<int32_t>(from.energy_source));
  telemetry.set_loss_sum(from.loss_sum);
  telemetry.set_correct(from.correct);
  telemetry.set_loss_samples(from.loss_samples);
}

void Fill(StageFailed& from, proto::FromWorker& to) { *to.mutable_stage_failed() = ToProto(from); }

void Fill(ProfileFailed& from, proto::FromWorker& to) {
  to.mutable_profile_failed()->set_reason(CleanUtf8(from.reason, kMaxReasonBytes));
  to.mutable_profile_failed()->set_unfit(from.unfit);
  to.mutable_profile_failed()->set_generation(from.generation.value());
}

void Fill(ProgramReport& from, proto::FromWorker& to) {
  proto::ProgramReport& report = *to.mutable_program_report();
  report.set_generation(from.generation.value());
  report.set_failure(CleanUtf8(from.failure, kMaxReasonBytes));
  report.mutable_layers()->set_first_layer(from.listing.first_layer);
  report.mutable_layers()->set_last_layer(from.listing.last_layer);
  report.set_samples(from.listing.samples);
  report.mutable_processors()->Assign(from.listing.processors.begin(),
                                      from.listing.processors.end());
  for (const ProgramLine& line : from.listing.lines) {
    proto::ProgramLine& wire = *report.add_lines();
    wire.set_part(line.part);
    wire.set_layer(line.layer);
    wire.set_op(line.op);
    wire.set_instruction(line.instruction);
    wire.set_processor(line.processor);
    wire.set_seconds(line.seconds);
    wire.set_switches(line.switches);
    wire.set_switch_seconds(line.switch_seconds);
    wire.set_switch_bytes(line.switch_bytes);
    wire.set_split(line.split);
    wire.set_begin_seconds(line.begin_seconds);
  }
}

void Fill(ProcessorList& from, proto::FromWorker& to) {
  *to.mutable_processor_list() = ToProto(from.processors);
}

// ---- messages -> vocabulary, one overload a message

template <typename Repeated>
absl::Status CheckNames(const std::string& field, const Repeated& names) {
  RUNNEL_RETURN_IF_ERROR(CheckCount(field, names.size(), 0, kMaxListed));
  for (const std::string& name : names) RUNNEL_RETURN_IF_ERROR(CheckName(field, name));
  return absl::OkStatus();
}

absl::StatusOr<CodecFamily> Read(const proto::CodecFamily& from) {
  constexpr double kLargest = 1e9;
  constexpr auto kMostKind = static_cast<int64_t>(ParameterRange::Kind::kRatio);
  RUNNEL_RETURN_IF_ERROR(CheckName("hello.codecs.name", from.name()));
  RUNNEL_RETURN_IF_ERROR(CheckRange("hello.codecs.kind", from.kind(), 0, kMostKind));
  RUNNEL_RETURN_IF_ERROR(CheckReal("hello.codecs.min", from.min(), 0, kLargest));
  RUNNEL_RETURN_IF_ERROR(CheckReal("hello.codecs.max", from.max(), from.min(), kLargest));
  const bool counts = from.kind() == static_cast<uint32_t>(ParameterRange::Kind::kInteger);
  RUNNEL_RETURN_IF_ERROR(CheckReal("hello.codecs.step", from.step(), counts ? 1 : 0, kLargest));
  return CodecFamily{
      from.name(),
      {static_cast<ParameterRange::Kind>(from.kind()), from.min(), from.max(), from.step()}};
}

absl::StatusOr<WorkerMessage> Read(const proto::Hello& from) {
  // Checked in any version, since a refusal names the worker.
  RUNNEL_RETURN_IF_ERROR(CheckWorkerName("hello.name", from.name()));
  if (from.protocol_version() == kProtocolVersion) {
    RUNNEL_RETURN_IF_ERROR(CheckText("hello.data_address", from.data_address()));
    RUNNEL_RETURN_IF_ERROR(CheckText("hello.numerics_class", from.numerics_class()));
    RUNNEL_RETURN_IF_ERROR(CheckNames("hello.backends", from.backends()));
    RUNNEL_RETURN_IF_ERROR(CheckNames("hello.recipes", from.recipes()));
    RUNNEL_RETURN_IF_ERROR(CheckCount("hello.codecs", from.codecs_size(), 0, kMaxListed));
    RUNNEL_RETURN_IF_ERROR(CheckText("hello.secret", from.secret()));
    RUNNEL_RETURN_IF_ERROR(CheckRange("hello.memory_bytes", from.memory_bytes(), 0, kMaxInt64));
    RUNNEL_RETURN_IF_ERROR(CheckText("hello.device_id", from.device_id()));
    RUNNEL_RETURN_IF_ERROR(CheckRange("hello.incarnation", from.incarnation(), 0, kMaxInt64));
    RUNNEL_RETURN_IF_ERROR(CheckText("hello.backend", from.backend()));
    RUNNEL_RETURN_IF_ERROR(CheckText("hello.device_class", from.device_class()));
  }
  WorkerHello hello;
  hello.protocol_version = from.protocol_version();
  hello.name = from.name();
  hello.data_address = from.data_address();
  hello.numerics_class = from.numerics_class();
  hello.backends.assign(from.backends().begin(), from.backends().end());
  hello.recipes.assign(from.recipes().begin(), from.recipes().end());
  hello.secret = from.secret();
  if (from.protocol_version() != kProtocolVersion) return hello;
  for (const proto::CodecFamily& family : from.codecs()) {
    RUNNEL_ASSIGN_OR_RETURN(hello.codecs.emplace_back(), Read(family));
  }
  hello.memory_bytes = from.memory_bytes();
  hello.device_id = from.device_id();
  hello.incarnation = from.incarnation();
  hello.backend = from.backend();
  hello.device_class = from.device_class();
  RUNNEL_ASSIGN_OR_RETURN(hello.processor_list,
                          FromProto("hello.processor_list", from.processor_list()));
  return hello;
}

absl::StatusOr<WorkerMessage> Read(const proto::Heartbeat& from) {
  RUNNEL_RETURN_IF_ERROR(CheckRange("heartbeat.phase", from.phase(), 0, 4));
  RUNNEL_RETURN_IF_ERROR(CheckRange("heartbeat.progress", from.progress(), 0, kMaxInt64));
  return Heartbeat{static_cast<WorkerPhase>(from.phase()), from.progress()};
}

absl::StatusOr<WorkerMessage> Read(const proto::WayMeasured& from) {
  RUNNEL_RETURN_IF_ERROR(
      CheckReal("way_measured.bytes_per_second", from.bytes_per_second(), 0, kMaxBytesPerSecond));
  RUNNEL_RETURN_IF_ERROR(CheckRange("way_measured.ns", from.ns(), 0, kMaxAmount));
  return WayMeasured{from.bytes_per_second(), from.ns()};
}

absl::StatusOr<WorkerMessage> Read(proto::ProbePiece& from) {
  RUNNEL_RETURN_IF_ERROR(CheckRange("probe_piece.count", from.count(), 1, kMaxProbePieces));
  RUNNEL_RETURN_IF_ERROR(CheckRange("probe_piece.index", from.index(), 0, from.count() - 1));
  RUNNEL_RETURN_IF_ERROR(CheckCount(
      "probe_piece.padding", static_cast<int64_t>(from.padding().size()), 0, kMaxProbePieceBytes));
  RUNNEL_RETURN_IF_ERROR(CheckRange("probe_piece.answer_bytes", from.answer_bytes(), 0,
                                    kMaxProbePieces * kMaxProbePieceBytes));
  return ProbePiece{from.index(), from.count(), std::move(*from.mutable_padding()),
                    from.answer_bytes()};
}

absl::StatusOr<DeviceCosts> FromProto(const proto::DeviceCosts& from) {
  RUNNEL_RETURN_IF_ERROR(CheckReal("costs.forward_share", from.forward_share(), 0, 1));
  RUNNEL_RETURN_IF_ERROR(CheckReal("costs.input_gradient_share", from.input_gradient_share(), 0,
                                   1 - from.forward_share()));
  RUNNEL_RETURN_IF_ERROR(
      CheckReal("costs.coder_seconds_per_byte", from.coder_seconds_per_byte(), 0, kMaxCost));
  RUNNEL_RETURN_IF_ERROR(CheckReal("costs.frame_seconds", from.frame_seconds(), 0, kMaxCost));
  RUNNEL_RETURN_IF_ERROR(
      CheckReal("costs.link_byte_seconds", from.link_byte_seconds(), 0, kMaxCost));
  return DeviceCosts{from.forward_share(), from.input_gradient_share(),
                     from.coder_seconds_per_byte(), from.frame_seconds(), from.link_byte_seconds()};
}

absl::StatusOr<WorkerMessage> Read(const proto::ProfileReport& from) {
  const std::string field = "profile_report.layer_seconds";
  RUNNEL_RETURN_IF_ERROR(CheckCount(field, from.layer_seconds_size(), 1, kMaxLayers));
  for (const double seconds : from.layer_seconds()) {
    RUNNEL_RETURN_IF_ERROR(CheckReal(field, seconds, 0, kMaxSeconds));
  }
  const int measured = from.layer_seconds_size();
  RUNNEL_RETURN_IF_ERROR(
      CheckCount("profile_report.spreads", from.spreads_size(), measured, measured));
  for (const double spread : from.spreads()) {
    RUNNEL_RETURN_IF_ERROR(CheckReal("profile_report.spreads", spread, 0, kMaxSeconds));
  }
  RUNNEL_RETURN_IF_ERROR(
      CheckReal("profile_report.processor_share", from.processor_share(), kLeastProcessorShare, 1));
  RUNNEL_ASSIGN_OR_RETURN(const DeviceCosts costs, FromProto(from.costs()));
  RUNNEL_ASSIGN_OR_RETURN(const Generation generation,
                          ToGeneration("profile_report.generation", from.generation()));
  RUNNEL_RETURN_IF_ERROR(CheckText("profile_report.backend", from.backend()));
  RUNNEL_RETURN_IF_ERROR(CheckText("profile_report.numerics_class", from.numerics_class()));
  RUNNEL_ASSIGN_OR_RETURN(const std::string choice,
                          ToReason("profile_report.choice", from.choice()));
  return ProfileReport{{from.layer_seconds().begin(), from.layer_seconds().end()},
                       {from.spreads().begin(), from.spreads().end()},
                       from.processor_share(),
                       from.kept(),
                       costs,
                       generation,
                       from.backend(),
                       choice,
                       from.numerics_class()};
}

absl::StatusOr<WorkerMessage> Read(const proto::ProfileProgress& from) {
  RUNNEL_RETURN_IF_ERROR(CheckReal("profile_progress.share", from.share(), 0, 1));
  RUNNEL_ASSIGN_OR_RETURN(const Generation generation,
                          ToGeneration("profile_progress.generation", from.generation()));
  return ProfileProgress{from.share(), generation};
}

absl::StatusOr<WorkerMessage> Read(const proto::StageReady& from) {
  RUNNEL_ASSIGN_OR_RETURN(const Generation generation,
                          ToGeneration("stage_ready.generation", from.generation()));
  return StageReady{generation};
}

absl::StatusOr<WorkerMessage> Read(const proto::BarrierReached& from) {
  BarrierReached reached;
  RUNNEL_ASSIGN_OR_RETURN(reached.generation,
                          ToGeneration("barrier_reached.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(reached.sequence,
                          ToSequence("barrier_reached.sequence", from.sequence()));
  return reached;
}

absl::StatusOr<WorkerMessage> Read(proto::Snapshot& from) {
  Snapshot snapshot;
  RUNNEL_ASSIGN_OR_RETURN(snapshot.generation,
                          ToGeneration("snapshot.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(snapshot.sequence, ToSequence("snapshot.sequence", from.sequence()));
  RUNNEL_ASSIGN_OR_RETURN(snapshot.state,
                          FromProto(std::move(*from.mutable_state()), ZeroTensors::kLeftOut));
  return snapshot;
}

absl::StatusOr<WorkerMessage> Read(const proto::Replicated& from) {
  Replicated replicated;
  RUNNEL_ASSIGN_OR_RETURN(replicated.id, runnel::FromProto("replicated.id", from.id()));
  RUNNEL_RETURN_IF_ERROR(CheckRange("replicated.stall_ns", from.stall_ns(), 0, kMaxNs));
  RUNNEL_RETURN_IF_ERROR(CheckRange("replicated.took_ns", from.took_ns(), 0, kMaxNs));
  RUNNEL_RETURN_IF_ERROR(CheckRange("replicated.bytes", from.bytes(), 0, kMaxAmount));
  replicated.stall_ns = from.stall_ns();
  replicated.took_ns = from.took_ns();
  replicated.bytes = from.bytes();
  return replicated;
}

absl::StatusOr<WorkerMessage> Read(proto::LayersFetched& from) {
  LayersFetched fetched;
  RUNNEL_ASSIGN_OR_RETURN(fetched.generation,
                          ToGeneration("layers_fetched.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(fetched.state,
                          FromProto(std::move(*from.mutable_state()), ZeroTensors::kLeftOut));
  // Another device would train on with them. A snapshot of a model that diverged is no error.
  RUNNEL_RETURN_IF_ERROR(CheckFinite("layers_fetched.state", fetched.state));
  return fetched;
}

absl::StatusOr<WorkerMessage> Read(const proto::StagePrepared& from) {
  RUNNEL_ASSIGN_OR_RETURN(const Generation generation,
                          ToGeneration("stage_prepared.generation", from.generation()));
  RUNNEL_RETURN_IF_ERROR(CheckText("stage_prepared.numerics_class", from.numerics_class()));
  return StagePrepared{generation, from.numerics_class()};
}

// A loss may be NaN or infinite: that is news, not an error.
absl::StatusOr<WorkerMessage> Read(const proto::EvaluationDone& from) {
  EvaluationDone done;
  RUNNEL_ASSIGN_OR_RETURN(done.generation,
                          ToGeneration("evaluation_done.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(done.first, ToSequence("evaluation_done.first", from.first()));
  RUNNEL_RETURN_IF_ERROR(CheckRange("evaluation_done.samples", from.samples(), 0, kMaxAmount));
  RUNNEL_RETURN_IF_ERROR(CheckRange("evaluation_done.correct", from.correct(), 0, from.samples()));
  done.loss_sum = from.loss_sum();
  done.correct = from.correct();
  done.samples = from.samples();
  return done;
}

absl::StatusOr<WorkerMessage> Read(const proto::Telemetry& from) {
  Telemetry telemetry;
  RUNNEL_ASSIGN_OR_RETURN(telemetry.generation,
                          ToGeneration("telemetry.generation", from.generation()));
  const struct {
    const char* field;
    int64_t value;
    int64_t* to;
  } rows[] = {
      {"telemetry.forwards", from.forwards(), &telemetry.forwards},
      {"telemetry.backwards", from.backwards(), &telemetry.backwards},
      {"telemetry.busy_ns", from.busy_ns(), &telemetry.busy_ns},
      {"telemetry.wait_ns", from.wait_ns(), &telemetry.wait_ns},
      {"telemetry.codec_ns", from.codec_ns(), &telemetry.codec_ns},
      {"telemetry.busy_processor_ns", from.busy_processor_ns(), &telemetry.busy_processor_ns},
      {"telemetry.processor_ns", from.processor_ns(), &telemetry.processor_ns},
      {"telemetry.last_backward_ns", from.last_backward_ns(), &telemetry.last_backward_ns},
      {"telemetry.peak_rss_bytes", from.peak_rss_bytes(), &telemetry.peak_rss_bytes},
      {"telemetry.memory_bytes", from.memory_bytes(), &telemetry.memory_bytes},
      {"telemetry.frames_down", from.frames_down(), &telemetry.frames_down},
      {"telemetry.frames_up", from.frames_up(), &telemetry.frames_up},
      {"telemetry.bytes_down", from.bytes_down(), &telemetry.bytes_down},
      {"telemetry.bytes_up", from.bytes_up(), &telemetry.bytes_up},
      {"telemetry.raw_bytes_down", from.raw_bytes_down(), &telemetry.raw_bytes_down},
      {"telemetry.raw_bytes_up", from.raw_bytes_up(), &telemetry.raw_bytes_up},
      {"telemetry.stale_frames_dropped", from.stale_frames_dropped(),
       &telemetry.stale_frames_dropped},
      {"telemetry.loss_samples", from.loss_samples(), &telemetry.loss_samples},
      {"telemetry.upstream_round_trip_ns", from.upstream_round_trip_ns(),
       &telemetry.upstream_round_trip_ns},
      {"telemetry.downstream_round_trip_ns", from.downstream_round_trip_ns(),
       &telemetry.downstream_round_trip_ns},
  };
  for (const auto& row : rows) {
    RUNNEL_RETURN_IF_ERROR(CheckRange(row.field, row.value, 0, kMaxInt64));
    *row.to = row.value;
  }
  RUNNEL_RETURN_IF_ERROR(CheckRange("telemetry.correct", from.correct(), 0, from.loss_samples()));
  RUNNEL_RETURN_IF_ERROR(CheckReal("telemetry.upstream_bytes_per_second",
                                   from.upstream_bytes_per_second(), 0, kMaxBytesPerSecond));
  RUNNEL_RETURN_IF_ERROR(CheckReal("telemetry.downstream_bytes_per_second",
                                   from.downstream_bytes_per_second(), 0, kMaxBytesPerSecond));
  RUNNEL_RETURN_IF_ERROR(CheckReal("telemetry.joules", from.joules(), 0, kMaxJoules));
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("telemetry.energy_source", from.energy_source(), 0, kEnergySourceCount - 1));
  telemetry.joules = from.joules();
  telemetry.energy_source = static_cast<EnergySource>(from.energy_source());
  telemetry.upstream_bytes_per_second = from.upstream_bytes_per_second();
  telemetry.downstream_bytes_per_second = from.downstream_bytes_per_second();
  telemetry.correct = from.correct();
  telemetry.loss_sum = from.loss_sum();
  return telemetry;
}

absl::StatusOr<WorkerMessage> Read(const proto::StageFailed& from) {
  return StageFailedFromProto(from);
}

absl::StatusOr<WorkerMessage> Read(const proto::ProfileFailed& from) {
  ProfileFailed failed;
  RUNNEL_ASSIGN_OR_RETURN(failed.reason, ToReason("profile_failed.reason", from.reason()));
  RUNNEL_ASSIGN_OR_RETURN(failed.generation,
                          ToGeneration("profile_failed.generation", from.generation()));
  failed.unfit = from.unfit();
  return failed;
}

absl::StatusOr<ProgramLine> Read(const proto::ProgramLine& from) {
  RUNNEL_RETURN_IF_ERROR(CheckText("program_report.lines.part", from.part()));
  RUNNEL_RETURN_IF_ERROR(CheckRange("program_report.lines.layer", from.layer(), 0, kMaxLayers - 1));
  RUNNEL_RETURN_IF_ERROR(CheckRange("program_report.lines.op", from.op(), 0, kMaxAmount));
  RUNNEL_RETURN_IF_ERROR(CheckText("program_report.lines.instruction", from.instruction()));
  RUNNEL_RETURN_IF_ERROR(CheckText("program_report.lines.processor", from.processor()));
  RUNNEL_RETURN_IF_ERROR(CheckReal("program_report.lines.seconds", from.seconds(), 0, kMaxSeconds));
  RUNNEL_RETURN_IF_ERROR(
      CheckReal("program_report.lines.switch_seconds", from.switch_seconds(), 0, kMaxSeconds));
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("program_report.lines.switch_bytes", from.switch_bytes(), 0, kMaxInt64));
  RUNNEL_RETURN_IF_ERROR(CheckRange("program_report.lines.split", from.split(), 0, kMaxAmount));
  RUNNEL_RETURN_IF_ERROR(CheckReal("program_report.lines.begin_seconds", from.begin_seconds(),
                                   -kMaxSeconds, kMaxSeconds));
  return ProgramLine{from.part(),        from.layer(),          from.op(),
                     from.instruction(), from.processor(),      from.seconds(),
                     from.switches(),    from.switch_seconds(), from.switch_bytes(),
                     from.split(),       from.begin_seconds()};
}

absl::StatusOr<WorkerMessage> Read(const proto::ProgramReport& from) {
  ProgramReport report;
  RUNNEL_ASSIGN_OR_RETURN(report.generation,
                          ToGeneration("program_report.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(report.failure, ToReason("program_report.failure", from.failure()));
  const proto::LayerRange& layers = from.layers();
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("program_report.layers.last_layer", layers.last_layer(), 0, kMaxLayers - 1));
  RUNNEL_RETURN_IF_ERROR(CheckRange("program_report.layers.first_layer", layers.first_layer(), 0,
                                    layers.last_layer()));
  report.listing.first_layer = layers.first_layer();
  report.listing.last_layer = layers.last_layer();
  RUNNEL_RETURN_IF_ERROR(CheckRange("program_report.samples", from.samples(), 0, kMaxAmount));
  report.listing.samples = from.samples();
  RUNNEL_RETURN_IF_ERROR(
      CheckCount("program_report.processors", from.processors_size(), 0, kMaxProcessors));
  RUNNEL_RETURN_IF_ERROR(CheckNames("program_report.processors", from.processors()));
  report.listing.processors.assign(from.processors().begin(), from.processors().end());
  RUNNEL_RETURN_IF_ERROR(
      CheckCount("program_report.lines", from.lines_size(), 0, kMaxProgramLines));
  for (const proto::ProgramLine& line : from.lines()) {
    RUNNEL_ASSIGN_OR_RETURN(report.listing.lines.emplace_back(), Read(line));
  }
  return report;
}

}  // namespace

proto::FromWorker ToProto(WorkerMessage message) {
  proto::FromWorker wire;
  std::visit([&wire](auto& alternative) { Fill(alternative, wire); }, message);
  return wire;
}

absl::StatusOr<WorkerMessage> FromProto(proto::FromWorker message) {
  switch (message.message_case()) {
    case proto::FromWorker::kHello:
      return Read(message.hello());
    case proto::FromWorker::kProfileReport:
      return Read(message.profile_report());
    case proto::FromWorker::kStageReady:
      return Read(message.stage_ready());
    case proto::FromWorker::kBarrierReached:
      return Read(message.barrier_reached());
    case proto::FromWorker::kSnapshot:
      return Read(*message.mutable_snapshot());
    case proto::FromWorker::kEvaluationDone:
      return Read(message.evaluation_done());
    case proto::FromWorker::kTelemetry:
      return Read(message.telemetry());
    case proto::FromWorker::kStageFailed:
      return Read(message.stage_failed());
    case proto::FromWorker::kLayersFetched:
      return Read(*message.mutable_layers_fetched());
    case proto::FromWorker::kStagePrepared:
      return Read(message.stage_prepared());
    case proto::FromWorker::kProfileFailed:
      return Read(message.profile_failed());
    case proto::FromWorker::kProfileProgress:
      return Read(message.profile_progress());
    case proto::FromWorker::kWayMeasured:
      return Read(message.way_measured());
    case proto::FromWorker::kProbePiece:
      return Read(*message.mutable_probe_piece());
    case proto::FromWorker::kLeaving:
      return Leaving{};
    case proto::FromWorker::kHeartbeat:
      return Read(message.heartbeat());
    case proto::FromWorker::kReplicated:
      return Read(message.replicated());
    case proto::FromWorker::kProgramReport:
      return Read(message.program_report());
    case proto::FromWorker::kProcessorList: {
      RUNNEL_ASSIGN_OR_RETURN(std::vector<ProcessorFacts> processors,
                              FromProto("processor_list", message.processor_list()));
      return ProcessorList{std::move(processors)};
    }
    case proto::FromWorker::kPart:
    case proto::FromWorker::kPartsArrived:
    case proto::FromWorker::kPartsDropped:
    case proto::FromWorker::kReceived:
    case proto::FromWorker::kGoodbye:
    case proto::FromWorker::kLayer:
    case proto::FromWorker::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("message: is none that central knows");
}

}  // namespace runnel
