#pragma once

// The fields of control.proto and processor.proto (wire_fields.h): how each message of control.h
// travels. Limits stand in the .proto files.

#include <variant>

#include "proto/base/figures/figure_fields.h"
#include "proto/processor.pb.h"
#include "proto/transport/control/control.h"
#include "proto/transport/control/model_convert.h"
#include "proto/transport/control/model_fields.h"

namespace runnel {

// What has checks of its own.
template <typename T, typename Wire>
struct WireFormOf {
  static void To(T value, google::protobuf::Message& message) {
    static_cast<Wire&>(message) = ToProto(std::move(value));
  }
  static absl::StatusOr<T> From(google::protobuf::Message& message) {
    return FromProto(std::move(static_cast<Wire&>(message)));
  }
};
template <>
struct WireForm<ModelSpec> : WireFormOf<ModelSpec, proto::Model> {};
template <>
struct WireForm<Plan> : WireFormOf<Plan, proto::Plan> {};
template <>
struct WireForm<TrainingSettings> : WireFormOf<TrainingSettings, proto::TrainingSettings> {};

template <>
struct WireForm<ModelState> {
  static void To(ModelState state, google::protobuf::Message& message) {
    static_cast<proto::ModelState&>(message) = ToProto(std::move(state), ZeroTensors::kLeftOut);
  }
  static absl::StatusOr<ModelState> From(google::protobuf::Message& message) {
    return FromProto(std::move(static_cast<proto::ModelState&>(message)), ZeroTensors::kLeftOut);
  }
};

// ---- parts of messages

void ListFields(auto& list, LayerRange& range) {
  list("first_layer", range.first_layer)("last_layer", range.last_layer);
}

void ListFields(auto& list, ReplicaId& id) {
  list("generation", id.generation)("sequence", id.sequence);
}

void ListFields(auto& list, LinkTarget& target) {
  list("address", target.address)("peer", target.peer);
  list("token", target.token)("greeting", target.greeting);
}

void ListFields(auto& list, CodecFamily& family) {
  list("name", family.name)("kind", family.parameter.kind);
  list("min", family.parameter.min)("max", family.parameter.max)("step", family.parameter.step);
}

void ListFields(auto& list, DeviceCosts& costs) {
  list("forward_share", costs.forward_share)("input_gradient_share", costs.input_gradient_share);
  list("coder_seconds_per_byte", costs.coder_seconds_per_byte);
  list("frame_seconds", costs.frame_seconds)("link_byte_seconds", costs.link_byte_seconds);
}

void ListFields(auto& list, ProcessorFacts& facts) {
  list("backend", facts.backend)("state", facts.state)("device", facts.device);
  list("driver", facts.driver)("compute_units", facts.compute_units);
  list("memory_bytes", facts.memory_bytes)("dot_product", facts.dot_product);
  list("is_emulated", facts.is_emulated)("note", facts.note);
}

void ListFields(auto& list, ProcessorList& processors) {
  list("processors", processors.processors);
}

void ListFields(auto& list, ProgramLine& line) {
  list("part", line.part)("layer", line.layer)("op", line.op)("instruction", line.instruction);
  list("processor", line.processor)("seconds", line.seconds)("switches", line.switches);
  list("switch_seconds", line.switch_seconds)("switch_bytes", line.switch_bytes);
  list("split", line.split)("begin_seconds", line.begin_seconds);
}

// ---- both ways

void ListFields(auto& list, ProbePiece& piece) {
  list("index", piece.index)("count", piece.count);
  list("padding", piece.padding)("answer_bytes", piece.answer_bytes);
}

// ---- worker -> central

void ListFields(auto& list, WorkerHello& hello) {
  list("protocol_version", hello.protocol_version)("name", hello.name);
  list("data_address", hello.data_address)("numerics_class", hello.numerics_class);
  list("backends", hello.backends)("recipes", hello.recipes)("codecs", hello.codecs);
  list("secret", hello.secret)("memory_bytes", hello.memory_bytes)("device_id", hello.device_id);
  list("incarnation", hello.incarnation)("backend", hello.backend);
  list("device_class", hello.device_class)("backend_options", hello.backend_options);
  list("site", hello.site)("limits", hello.limits);
  ProcessorList processors{std::move(hello.processor_list)};
  list("processor_list", processors);
  hello.processor_list = std::move(processors.processors);
}

void ListFields(auto& list, ProfileReport& report) {
  list("layer_seconds", report.layer_seconds)("spreads", report.spreads);
  list("processor_share", report.processor_share)("kept", report.kept)("costs", report.costs);
  list("generation", report.generation)("backend", report.backend)("choice", report.choice);
  list("numerics_class", report.numerics_class);
}

void ListFields(auto& list, ProfileProgress& progress) {
  list("share", progress.share)("generation", progress.generation);
}

void ListFields(auto& list, ProfileFailed& failed) {
  list("reason", failed.reason)("unfit", failed.unfit)("generation", failed.generation);
}

void ListFields(auto& list, WayMeasured& way) {
  list("bytes_per_second", way.bytes_per_second)("ns", way.ns);
}

void ListFields(auto& list, Heartbeat& heartbeat) {
  list("phase", heartbeat.phase)("progress", heartbeat.progress)("clock_ns", heartbeat.clock_ns);
}

void ListFields(auto& list, StageReady& ready) { list("generation", ready.generation); }

void ListFields(auto& list, StagePrepared& prepared) {
  list("generation", prepared.generation)("numerics_class", prepared.numerics_class);
}

void ListFields(auto& list, BarrierReached& reached) {
  list("generation", reached.generation)("sequence", reached.sequence);
}

void ListFields(auto& list, Snapshot& snapshot) {
  list("generation", snapshot.generation)("sequence", snapshot.sequence)("state", snapshot.state);
}

void ListFields(auto& list, LayersFetched& fetched) {
  list("generation", fetched.generation)("state", fetched.state);
}

void ListFields(auto& list, Replicated& replicated) {
  list("id", replicated.id)("stall_ns", replicated.stall_ns);
  list("bytes", replicated.bytes)("took_ns", replicated.took_ns)("kept_of", replicated.kept_of);
}

void ListFields(auto& list, ClassCounts& counts) {
  list("labels", counts.labels)("among_five", counts.among_five)("confusion", counts.confusion);
}

void ListFields(auto& list, EvaluationDone& done) {
  list("generation", done.generation)("first", done.first)("loss_sum", done.loss_sum);
  list("correct", done.correct)("samples", done.samples)("counts", done.counts);
}

void ListFields(auto& list, DryRunDone& done) {
  list("generation", done.generation)("first", done.first);
  list("micro_batches", done.sums.micro_batches)("mean_square", done.sums.mean_square);
  list("deviation", done.sums.deviation)("error_mean_square", done.sums.error_mean_square);
  list("error_deviation", done.sums.error_deviation);
}

void ListFields(auto& list, GateChoices& gate) {
  list("layer", gate.layer)("samples", gate.samples);
}

void ListFields(auto& list, Histogram& histogram) {
  Unsaid<int64_t, std::tuple_size_v<decltype(Histogram::counts)>> counts{histogram.counts, {}};
  list("sum_ns", histogram.sum_ns)("counts", counts);
}

void ListFields(auto& list, Telemetry& telemetry) {
  list("generation", telemetry.generation)("energy_source", telemetry.energy_source);
  list("gates", telemetry.gates);
  for (const FigureField& field : FigureFields())
    std::visit([&](auto member) { list(field.name, telemetry.*member); }, field.member);
}

void ListFields(auto& list, StageFailed& failed) {
  list("generation", failed.generation)("reason", failed.reason);
  list("unfit", failed.unfit)("lost_backend", failed.lost_backend);
  list("not_finite", failed.not_finite);
}

void ListFields(auto& list, Leaving& leaving) { list("reason", leaving.reason); }

void ListFields(auto& list, ProgramReport& report) {
  ProgramListing& listing = report.listing;
  LayerRange layers{listing.first_layer, listing.last_layer};
  list("generation", report.generation)("failure", report.failure)("layers", layers);
  list("samples", listing.samples)("processors", listing.processors)("lines", listing.lines);
  listing.first_layer = layers.first_layer;
  listing.last_layer = layers.last_layer;
}

void ListFields(auto& list, Span& span) {
  list("kind", span.kind)("micro_batch", span.micro_batch);
  list("begin_ns", span.begin_ns)("took_ns", span.took_ns);
}

void ListFields(auto& list, TraceReport& report) {
  list("spans", report.spans)("left_out", report.left_out)("id", report.id);
}

// ---- central -> worker

void ListFields(auto& list, Welcome& welcome) {
  list("device", welcome.device)("run", welcome.run)("life", welcome.life);
}

void ListFields(auto& list, Awaiting& awaiting) {
  list("here", awaiting.here)("wanted", awaiting.wanted);
}

void ListFields(auto& list, Refused& refused) {
  list("reason", refused.reason)("is_final", refused.is_final);
}

void ListFields(auto& list, ProfileRequest& request) {
  list("model", request.model)("recipe", request.recipe)("backend", request.backend);
  list("micro_batch_size", request.micro_batch_size)("repetitions", request.repetitions);
  list("ranges", request.ranges)("burst_ms", request.burst_ms);
  list("nominal_step_ns", request.nominal_step_ns)("in_flight", request.in_flight);
  list("enough_ms", request.enough_ms)("neighbours", request.neighbours);
  list("cost_codecs", request.cost_codecs)("accepts_kept", request.accepts_kept);
  list("generation", request.generation);
}

void ListFields(auto& list, PrepareStage& prepare) {
  list("plan", prepare.plan)("stage", prepare.stage)("plain_loop", prepare.plain_loop);
  list("model", prepare.model)("training", prepare.training);
  list("eval_samples", prepare.eval_samples)("recipe", prepare.recipe)("backend", prepare.backend);
  list("link_token", prepare.link_token)("downstream", prepare.downstream);
  list("link_megabits_per_second", prepare.shaping.megabits_per_second);
  list("link_delay_ms", prepare.shaping.delay_ms)("first_sequence", prepare.first_sequence);
  list("state", prepare.state)("changes", prepare.changes)("draws_state", prepare.draws_state);
  list("link_greeting", prepare.link_greeting)("upstream_peer", prepare.upstream_peer);
  list("starts_over", prepare.starts_over)("replica", prepare.replica);
}

void ListFields(auto& list, RunUntil& grant) {
  list("limit", grant.limit)("changes", grant.changes)("generation", grant.generation);
}

void ListFields(auto& list, SnapshotRequest& request) {
  list("sequence", request.sequence)("weights_only", request.weights_only);
  list("generation", request.generation);
}

void ListFields(auto& list, EvaluateRequest& request) {
  list("first", request.first)("micro_batches", request.micro_batches);
  list("generation", request.generation);
}

void ListFields(auto& list, DryRunRequest& request) {
  list("first", request.first)("micro_batches", request.micro_batches);
  list("generation", request.generation)("link", request.coded.link);
  list("forward", request.coded.forward)("backward", request.coded.backward);
}

void ListFields(auto&, Release&) {}

void ListFields(auto& list, FetchLayers& fetch) {
  list("generation", fetch.generation)("ranges", fetch.ranges)("replica", fetch.replica);
}

void ListFields(auto& list, CommitPlan& commit) { list("generation", commit.generation); }

void ListFields(auto& list, AbortPlan& abort) { list("generation", abort.generation); }

void ListFields(auto& list, Replicate& replicate) {
  list("id", replicate.id)("holders", replicate.holders);
}

void ListFields(auto& list, CommitReplicas& commit) { list("id", commit.id); }

void ListFields(auto& list, RelayWanted& wanted) {
  list("ticket", wanted.ticket)("from", wanted.from);
}

void ListFields(auto& list, TraceRequest& request) {
  list("window_ns", request.window_ns)("id", request.id);
}

void ListFields(auto& list, ProgramRequest& request) {
  list("generation", request.generation)("model", request.model)("recipe", request.recipe);
  list("backend", request.backend)("layers", request.layers);
  list("micro_batch_size", request.micro_batch_size)("one_in_flight", request.one_in_flight);
  list("defers_weight_gradients", request.defers_weight_gradients)("training", request.training);
}

}  // namespace runnel
