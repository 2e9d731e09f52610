#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/control_convert.h"
#include "proto/transport/control/model_convert.h"
#include "proto/transport/control/replica_convert.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxRepetitions = 10'000;
constexpr int64_t kMaxProfiledInFlight = 64;
constexpr double kMaxMegabitsPerSecond = 1e9;
constexpr double kMaxDelayMs = 1e9;
constexpr double kMaxBurstMs = 60'000;
constexpr double kMaxClockStepNs = 1000;

// ---- vocabulary -> messages, one overload a message

void Fill(Welcome& from, proto::FromCentral& to) {
  to.mutable_welcome()->set_device(from.device.value());
  to.mutable_welcome()->set_run(from.run);
  to.mutable_welcome()->set_life(from.life);
}

void Fill(Refused& from, proto::FromCentral& to) {
  to.mutable_refused()->set_reason(CleanUtf8(from.reason, kMaxReasonBytes));
  to.mutable_refused()->set_is_final(from.is_final);
}

void Fill(ProfileRequest& from, proto::FromCentral& to) {
  proto::ProfileRequest& request = *to.mutable_profile_request();
  *request.mutable_model() = ToProto(from.model);
  request.set_recipe(from.recipe);
  request.set_backend(from.backend);
  request.set_micro_batch_size(from.micro_batch_size);
  request.set_repetitions(from.repetitions);
  for (const LayerRange& range : from.ranges) {
    proto::LayerRange& wire = *request.add_ranges();
    wire.set_first_layer(range.first_layer);
    wire.set_last_layer(range.last_layer);
  }
  request.set_burst_ms(from.burst_ms);
  request.set_nominal_step_ns(from.nominal_step_ns);
  request.mutable_in_flight()->Assign(from.in_flight.begin(), from.in_flight.end());
  request.set_enough_ms(from.enough_ms);
  request.set_neighbours(from.neighbours);
  request.set_accepts_kept(from.accepts_kept);
  for (const std::string& codec : from.cost_codecs) request.add_cost_codecs(codec);
  request.set_generation(from.generation.value());
}

proto::LinkTarget ToProto(const LinkTarget& from) {
  proto::LinkTarget target;
  target.set_address(from.address);
  target.set_peer(from.peer);
  target.set_token(from.token);
  target.set_greeting(from.greeting);
  return target;
}

void Fill(PrepareStage& from, proto::FromCentral& to) {
  proto::PrepareStage& prepare = *to.mutable_prepare_stage();
  *prepare.mutable_plan() = ToProto(from.plan);
  prepare.set_stage(from.stage);
  prepare.set_plain_loop(from.plain_loop);
  *prepare.mutable_model() = ToProto(from.model);
  *prepare.mutable_training() = ToProto(from.training);
  prepare.set_eval_samples(from.eval_samples);
  prepare.set_recipe(from.recipe);
  prepare.set_backend(from.backend);
  prepare.set_link_token(from.link_token);
  prepare.set_link_greeting(from.link_greeting);
  prepare.set_upstream_peer(from.upstream_peer);
  *prepare.mutable_downstream() = ToProto(from.downstream);
  prepare.set_link_megabits_per_second(from.shaping.megabits_per_second);
  prepare.set_link_delay_ms(from.shaping.delay_ms);
  prepare.set_first_sequence(from.first_sequence.value());
  for (const TrainingChange& change : from.changes) *prepare.add_changes() = ToProto(change);
  prepare.set_draws_state(from.draws_state);
  prepare.set_starts_over(from.starts_over);
  if (from.replica.has_value()) *prepare.mutable_replica() = ToProto(*from.replica);
  *prepare.mutable_state() = ToProto(std::move(from.state), ZeroTensors::kLeftOut);
}

void Fill(RunUntil& from, proto::FromCentral& to) {
  to.mutable_run_until()->set_generation(from.generation.value());
  to.mutable_run_until()->set_limit(from.limit.value());
  for (const TrainingChange& change : from.changes)
    *to.mutable_run_until()->add_changes() = ToProto(change);
}

void Fill(SnapshotRequest& from, proto::FromCentral& to) {
  to.mutable_snapshot_request()->set_generation(from.generation.value());
  to.mutable_snapshot_request()->set_sequence(from.sequence.value());
  to.mutable_snapshot_request()->set_weights_only(from.weights_only);
}

void Fill(FetchLayers& from, proto::FromCentral& to) {
  to.mutable_fetch_layers()->set_generation(from.generation.value());
  for (const LayerRange& range : from.ranges) {
    proto::LayerRange& wire = *to.mutable_fetch_layers()->add_ranges();
    wire.set_first_layer(range.first_layer);
    wire.set_last_layer(range.last_layer);
  }
  if (from.replica.has_value())
    *to.mutable_fetch_layers()->mutable_replica() = ToProto(*from.replica);
}

void Fill(Replicate& from, proto::FromCentral& to) {
  *to.mutable_replicate()->mutable_id() = ToProto(from.id);
}

void Fill(CommitReplicas& from, proto::FromCentral& to) {
  *to.mutable_commit_replicas()->mutable_id() = ToProto(from.id);
}

void Fill(CommitPlan& from, proto::FromCentral& to) {
  to.mutable_commit_plan()->set_generation(from.generation.value());
}

void Fill(RelayWanted& from, proto::FromCentral& to) {
  to.mutable_relay_wanted()->set_ticket(std::move(from.ticket));
  to.mutable_relay_wanted()->set_from(std::move(from.from));
}

void Fill(AbortPlan& from, proto::FromCentral& to) {
  to.mutable_abort_plan()->set_generation(from.generation.value());
}

void Fill(EvaluateRequest& from, proto::FromCentral& to) {
  to.mutable_evaluate_request()->set_generation(from.generation.value());
  to.mutable_evaluate_request()->set_first(from.first.value());
  to.mutable_evaluate_request()->set_micro_batches(from.micro_batches);
}

void Fill(ProbePiece& from, proto::FromCentral& to) {
  to.mutable_probe_piece()->set_index(from.index);
  to.mutable_probe_piece()->set_count(from.count);
  to.mutable_probe_piece()->set_padding(std::move(from.padding));
  to.mutable_probe_piece()->set_answer_bytes(from.answer_bytes);
}

void Fill(ProgramRequest& from, proto::FromCentral& to) {
  proto::ProgramRequest& request = *to.mutable_program_request();
  request.set_generation(from.generation.value());
  *request.mutable_model() = ToProto(from.model);
  request.set_recipe(from.recipe);
  request.set_backend(from.backend);
  request.mutable_layers()->set_first_layer(from.layers.first_layer);
  request.mutable_layers()->set_last_layer(from.layers.last_layer);
  request.set_micro_batch_size(from.micro_batch_size);
  request.set_accumulates(from.accumulates);
  request.set_rescale(from.rescale);
  request.set_batch_split(from.batch_split);
  request.set_one_in_flight(from.one_in_flight);
  request.set_defers_weight_gradients(from.defers_weight_gradients);
  request.set_optimizer(from.optimizer);
}

void Fill(Release&, proto::FromCentral& to) { to.mutable_release(); }

// ---- messages -> vocabulary, one overload a message

absl::StatusOr<CentralMessage> Read(proto::ProbePiece& from) {
  RUNNEL_RETURN_IF_ERROR(CheckRange("probe_piece.count", from.count(), 1, kMaxProbePieces));
  RUNNEL_RETURN_IF_ERROR(CheckRange("probe_piece.index", from.index(), 0, from.count() - 1));
  RUNNEL_RETURN_IF_ERROR(CheckCount(
      "probe_piece.padding", static_cast<int64_t>(from.padding().size()), 0, kMaxProbePieceBytes));
  RUNNEL_RETURN_IF_ERROR(CheckRange("probe_piece.answer_bytes", from.answer_bytes(), 0,
                                    kMaxProbePieces * kMaxProbePieceBytes));
  return ProbePiece{from.index(), from.count(), std::move(*from.mutable_padding()),
                    from.answer_bytes()};
}

absl::StatusOr<CentralMessage> Read(const proto::Welcome& from) {
  RUNNEL_RETURN_IF_ERROR(CheckRange("welcome.device", from.device(), 0, kMaxInt32));
  RUNNEL_RETURN_IF_ERROR(CheckText("welcome.run", from.run()));
  RUNNEL_RETURN_IF_ERROR(CheckRange("welcome.life", from.life(), 0, kMaxAmount));
  return Welcome{DeviceId(from.device()), from.run(), from.life()};
}

absl::StatusOr<CentralMessage> Read(const proto::Refused& from) {
  Refused refused;
  RUNNEL_ASSIGN_OR_RETURN(refused.reason, ToReason("refused.reason", from.reason()));
  refused.is_final = from.is_final();
  return refused;
}

absl::Status ReadRanges(const proto::ProfileRequest& from, ProfileRequest& request) {
  RUNNEL_RETURN_IF_ERROR(
      CheckCount("profile_request.ranges", from.ranges_size(), 0, kMaxProfileRanges));
  const int last_layer = request.model.layer_count() - 1;
  for (const proto::LayerRange& range : from.ranges()) {
    RUNNEL_RETURN_IF_ERROR(
        CheckRange("profile_request.ranges.last_layer", range.last_layer(), 0, last_layer));
    RUNNEL_RETURN_IF_ERROR(CheckRange("profile_request.ranges.first_layer", range.first_layer(), 0,
                                      range.last_layer()));
    request.ranges.push_back({range.first_layer(), range.last_layer()});
  }
  if (from.in_flight_size() == 0) return absl::OkStatus();
  RUNNEL_RETURN_IF_ERROR(CheckCount("profile_request.in_flight", from.in_flight_size(),
                                    from.ranges_size(), from.ranges_size()));
  for (const int64_t in_flight : from.in_flight()) {
    RUNNEL_RETURN_IF_ERROR(
        CheckRange("profile_request.in_flight", in_flight, 1, kMaxProfiledInFlight));
    request.in_flight.push_back(in_flight);
  }
  return absl::OkStatus();
}

absl::StatusOr<CentralMessage> Read(const proto::ProfileRequest& from) {
  ProfileRequest request;
  RUNNEL_ASSIGN_OR_RETURN(request.model, FromProto(from.model()));
  RUNNEL_RETURN_IF_ERROR(CheckName("profile_request.recipe", from.recipe()));
  request.recipe = from.recipe();
  RUNNEL_RETURN_IF_ERROR(CheckName("profile_request.backend", from.backend()));
  request.backend = from.backend();
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("profile_request.micro_batch_size", from.micro_batch_size(), 1, kMaxAmount));
  request.micro_batch_size = from.micro_batch_size();
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("profile_request.repetitions", from.repetitions(), 1, kMaxRepetitions));
  request.repetitions = from.repetitions();
  RUNNEL_RETURN_IF_ERROR(ReadRanges(from, request));
  RUNNEL_RETURN_IF_ERROR(CheckReal("profile_request.burst_ms", from.burst_ms(), 0, kMaxBurstMs));
  request.burst_ms = from.burst_ms();
  RUNNEL_RETURN_IF_ERROR(
      CheckReal("profile_request.nominal_step_ns", from.nominal_step_ns(), 0, kMaxClockStepNs));
  request.nominal_step_ns = from.nominal_step_ns();
  RUNNEL_RETURN_IF_ERROR(CheckReal("profile_request.enough_ms", from.enough_ms(), 0, kMaxBurstMs));
  request.enough_ms = from.enough_ms();
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("profile_request.neighbours", from.neighbours(), 0, kMaxAmount));
  request.neighbours = from.neighbours();
  request.accepts_kept = from.accepts_kept();
  RUNNEL_RETURN_IF_ERROR(
      CheckCount("profile_request.cost_codecs", from.cost_codecs_size(), 0, kMaxCostCodecs));
  for (const std::string& codec : from.cost_codecs()) {
    RUNNEL_RETURN_IF_ERROR(CheckName("profile_request.cost_codecs", codec));
    request.cost_codecs.push_back(codec);
  }
  RUNNEL_ASSIGN_OR_RETURN(request.generation,
                          ToGeneration("profile_request.generation", from.generation()));
  return request;
}

// The fields of PrepareStage that say what to run.
absl::Status ReadStage(const proto::PrepareStage& from, PrepareStage& prepare) {
  RUNNEL_ASSIGN_OR_RETURN(prepare.model, FromProto(from.model()));
  RUNNEL_ASSIGN_OR_RETURN(prepare.plan, FromProto(from.plan()));
  RUNNEL_RETURN_IF_ERROR(CheckPlan(prepare.plan, prepare.model));
  const int stages = static_cast<int>(prepare.plan.stages.size());
  RUNNEL_RETURN_IF_ERROR(CheckRange("prepare_stage.stage", from.stage(), 0, stages - 1));
  prepare.stage = from.stage();
  if (from.plain_loop() && stages != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("prepare_stage.plain_loop: the plan has ", stages, " stages, not 1"));
  }
  prepare.plain_loop = from.plain_loop();
  RUNNEL_ASSIGN_OR_RETURN(prepare.training, FromProto(from.training()));
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("prepare_stage.eval_samples", from.eval_samples(), 0, kMaxAmount));
  prepare.eval_samples = from.eval_samples();
  RUNNEL_ASSIGN_OR_RETURN(prepare.changes, FromProto("prepare_stage.changes", from.changes()));
  RUNNEL_ASSIGN_OR_RETURN(prepare.first_sequence,
                          ToSequence("prepare_stage.first_sequence", from.first_sequence()));
  return absl::OkStatus();
}

absl::StatusOr<LinkTarget> ReadTarget(const proto::LinkTarget& from) {
  RUNNEL_RETURN_IF_ERROR(CheckText("downstream.address", from.address()));
  RUNNEL_RETURN_IF_ERROR(CheckText("downstream.peer", from.peer()));
  RUNNEL_RETURN_IF_ERROR(CheckText("downstream.token", from.token()));
  RUNNEL_RETURN_IF_ERROR(CheckText("downstream.greeting", from.greeting()));
  return LinkTarget{from.address(), from.peer(), from.token(), from.greeting()};
}

absl::StatusOr<CentralMessage> Read(proto::PrepareStage& from) {
  PrepareStage prepare;
  RUNNEL_RETURN_IF_ERROR(ReadStage(from, prepare));
  RUNNEL_RETURN_IF_ERROR(CheckName("prepare_stage.recipe", from.recipe()));
  prepare.recipe = from.recipe();
  RUNNEL_RETURN_IF_ERROR(CheckName("prepare_stage.backend", from.backend()));
  prepare.backend = from.backend();
  RUNNEL_RETURN_IF_ERROR(CheckText("prepare_stage.link_token", from.link_token()));
  prepare.link_token = from.link_token();
  RUNNEL_RETURN_IF_ERROR(CheckText("prepare_stage.link_greeting", from.link_greeting()));
  prepare.link_greeting = from.link_greeting();
  RUNNEL_RETURN_IF_ERROR(CheckText("prepare_stage.upstream_peer", from.upstream_peer()));
  prepare.upstream_peer = from.upstream_peer();
  RUNNEL_ASSIGN_OR_RETURN(prepare.downstream, ReadTarget(from.downstream()));
  RUNNEL_RETURN_IF_ERROR(CheckReal("prepare_stage.link_megabits_per_second",
                                   from.link_megabits_per_second(), 0, kMaxMegabitsPerSecond));
  prepare.shaping.megabits_per_second = from.link_megabits_per_second();
  RUNNEL_RETURN_IF_ERROR(
      CheckReal("prepare_stage.link_delay_ms", from.link_delay_ms(), 0, kMaxDelayMs));
  prepare.shaping.delay_ms = from.link_delay_ms();
  prepare.draws_state = from.draws_state();
  prepare.starts_over = from.starts_over();
  if (from.has_replica()) {
    RUNNEL_ASSIGN_OR_RETURN(prepare.replica, FromProto("prepare_stage.replica", from.replica()));
  }
  RUNNEL_ASSIGN_OR_RETURN(prepare.state,
                          FromProto(std::move(*from.mutable_state()), ZeroTensors::kLeftOut));
  if (prepare.draws_state && !prepare.state.layers.empty()) {
    return absl::InvalidArgumentError("prepare_stage.draws_state: and the state has layers");
  }
  return prepare;
}

absl::StatusOr<CentralMessage> Read(const proto::RunUntil& from) {
  RunUntil grant;
  RUNNEL_ASSIGN_OR_RETURN(grant.generation,
                          ToGeneration("run_until.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(grant.limit, ToSequence("run_until.limit", from.limit()));
  RUNNEL_ASSIGN_OR_RETURN(grant.changes, FromProto("run_until.changes", from.changes()));
  return grant;
}

absl::StatusOr<CentralMessage> Read(const proto::SnapshotRequest& from) {
  SnapshotRequest request;
  RUNNEL_ASSIGN_OR_RETURN(request.generation,
                          ToGeneration("snapshot_request.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(request.sequence,
                          ToSequence("snapshot_request.sequence", from.sequence()));
  request.weights_only = from.weights_only();
  return request;
}

absl::StatusOr<CentralMessage> Read(const proto::FetchLayers& from) {
  FetchLayers fetch;
  RUNNEL_ASSIGN_OR_RETURN(fetch.generation,
                          ToGeneration("fetch_layers.generation", from.generation()));
  RUNNEL_RETURN_IF_ERROR(
      CheckCount("fetch_layers.ranges", from.ranges_size(), 0, kMaxProfileRanges));
  int next = 0;
  for (const proto::LayerRange& range : from.ranges()) {
    RUNNEL_RETURN_IF_ERROR(
        CheckRange("fetch_layers.ranges.first_layer", range.first_layer(), next, kMaxInt32 - 1));
    RUNNEL_RETURN_IF_ERROR(CheckRange("fetch_layers.ranges.last_layer", range.last_layer(),
                                      range.first_layer(), kMaxInt32 - 1));
    fetch.ranges.push_back({range.first_layer(), range.last_layer()});
    next = range.last_layer() + 1;
  }
  if (from.has_replica()) {
    RUNNEL_ASSIGN_OR_RETURN(fetch.replica, FromProto("fetch_layers.replica", from.replica()));
  }
  return fetch;
}

absl::StatusOr<CentralMessage> Read(const proto::Replicate& from) {
  RUNNEL_ASSIGN_OR_RETURN(const ReplicaId id, FromProto("replicate.id", from.id()));
  return Replicate{id};
}

absl::StatusOr<CentralMessage> Read(const proto::CommitReplicas& from) {
  RUNNEL_ASSIGN_OR_RETURN(const ReplicaId id, FromProto("commit_replicas.id", from.id()));
  return CommitReplicas{id};
}

absl::StatusOr<CentralMessage> Read(const proto::RelayWanted& from) {
  RUNNEL_RETURN_IF_ERROR(CheckName("relay_wanted.ticket", from.ticket()));
  RUNNEL_RETURN_IF_ERROR(CheckText("relay_wanted.from", from.from()));
  return RelayWanted{from.ticket(), from.from()};
}

absl::StatusOr<CentralMessage> Read(const proto::CommitPlan& from) {
  RUNNEL_ASSIGN_OR_RETURN(const Generation generation,
                          ToGeneration("commit_plan.generation", from.generation()));
  return CommitPlan{generation};
}

absl::StatusOr<CentralMessage> Read(const proto::AbortPlan& from) {
  RUNNEL_ASSIGN_OR_RETURN(const Generation generation,
                          ToGeneration("abort_plan.generation", from.generation()));
  return AbortPlan{generation};
}

absl::StatusOr<CentralMessage> Read(const proto::ProgramRequest& from) {
  ProgramRequest request;
  RUNNEL_ASSIGN_OR_RETURN(request.generation,
                          ToGeneration("program_request.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(request.model, FromProto(from.model()));
  RUNNEL_RETURN_IF_ERROR(CheckName("program_request.recipe", from.recipe()));
  request.recipe = from.recipe();
  RUNNEL_RETURN_IF_ERROR(CheckName("program_request.backend", from.backend()));
  request.backend = from.backend();
  const proto::LayerRange& layers = from.layers();
  RUNNEL_RETURN_IF_ERROR(CheckRange("program_request.layers.last_layer", layers.last_layer(), 0,
                                    request.model.layer_count() - 1));
  RUNNEL_RETURN_IF_ERROR(CheckRange("program_request.layers.first_layer", layers.first_layer(), 0,
                                    layers.last_layer()));
  request.layers = {layers.first_layer(), layers.last_layer()};
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("program_request.micro_batch_size", from.micro_batch_size(), 1, kMaxAmount));
  request.micro_batch_size = from.micro_batch_size();
  request.accumulates = from.accumulates();
  RUNNEL_RETURN_IF_ERROR(CheckName("program_request.rescale", from.rescale()));
  request.rescale = from.rescale();
  RUNNEL_RETURN_IF_ERROR(CheckName("program_request.batch_split", from.batch_split()));
  request.batch_split = from.batch_split();
  request.one_in_flight = from.one_in_flight();
  request.defers_weight_gradients = from.defers_weight_gradients();
  RUNNEL_RETURN_IF_ERROR(CheckName("program_request.optimizer", from.optimizer()));
  request.optimizer = from.optimizer();
  return request;
}

absl::StatusOr<CentralMessage> Read(const proto::EvaluateRequest& from) {
  EvaluateRequest request;
  RUNNEL_ASSIGN_OR_RETURN(request.generation,
                          ToGeneration("evaluate_request.generation", from.generation()));
  RUNNEL_ASSIGN_OR_RETURN(request.first, ToSequence("evaluate_request.first", from.first()));
  RUNNEL_RETURN_IF_ERROR(
      CheckRange("evaluate_request.micro_batches", from.micro_batches(), 1, kMaxAmount));
  request.micro_batches = from.micro_batches();
  return request;
}

}  // namespace

proto::FromCentral ToProto(CentralMessage message) {
  proto::FromCentral wire;
  std::visit([&wire](auto& alternative) { Fill(alternative, wire); }, message);
  return wire;
}

absl::StatusOr<CentralMessage> FromProto(proto::FromCentral message) {
  switch (message.message_case()) {
    case proto::FromCentral::kWelcome:
      return Read(message.welcome());
    case proto::FromCentral::kRefused:
      return Read(message.refused());
    case proto::FromCentral::kProfileRequest:
      return Read(message.profile_request());
    case proto::FromCentral::kPrepareStage:
      return Read(*message.mutable_prepare_stage());
    case proto::FromCentral::kRunUntil:
      return Read(message.run_until());
    case proto::FromCentral::kSnapshotRequest:
      return Read(message.snapshot_request());
    case proto::FromCentral::kEvaluateRequest:
      return Read(message.evaluate_request());
    case proto::FromCentral::kRelease:
      return Release{};
    case proto::FromCentral::kFetchLayers:
      return Read(message.fetch_layers());
    case proto::FromCentral::kCommitPlan:
      return Read(message.commit_plan());
    case proto::FromCentral::kAbortPlan:
      return Read(message.abort_plan());
    case proto::FromCentral::kProbePiece:
      return Read(*message.mutable_probe_piece());
    case proto::FromCentral::kReplicate:
      return Read(message.replicate());
    case proto::FromCentral::kCommitReplicas:
      return Read(message.commit_replicas());
    case proto::FromCentral::kRelayWanted:
      return Read(message.relay_wanted());
    case proto::FromCentral::kProgramRequest:
      return Read(message.program_request());
    case proto::FromCentral::kPart:
    case proto::FromCentral::kPartsArrived:
    case proto::FromCentral::kPartsDropped:
    case proto::FromCentral::kReceived:
    case proto::FromCentral::kLayer:
    case proto::FromCentral::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("message: is none that a worker knows");
}

}  // namespace runnel
