#include "proto/transport/control/control_convert.h"

#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partition/zoo/zoo.h"
#include "proto/base/figures/figure_fields.h"
#include "proto/transport/control/model_convert.h"
#include "tests/transport/control_messages.h"

namespace runnel::control_convert_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20260101;
constexpr int kRounds = 40;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Every field of a message, so that two can be compared.
auto Fields(const WorkerHello& m) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q, r] = m;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q, r);
}
auto Fields(const ProcessorList& m) { return std::tie(m.processors); }
auto Fields(const Leaving& m) { return std::tie(m.reason); }
auto Fields(const ProfileReport& m) {
  const auto& [a, b, c, d, e, f, g, h, i] = m;
  return std::tie(a, b, c, d, e, f, g, h, i);
}
auto Fields(const ProfileProgress& m) { return std::tie(m.share, m.generation); }
auto Fields(const WayMeasured& m) { return std::tie(m.bytes_per_second, m.ns); }
auto Fields(const ProbePiece& m) { return std::tie(m.index, m.count, m.padding, m.answer_bytes); }
auto Fields(const Heartbeat& m) { return std::tie(m.phase, m.progress, m.clock_ns); }
auto Fields(const StageReady& m) { return std::tie(m.generation); }
auto Fields(const BarrierReached& m) { return std::tie(m.generation, m.sequence); }
auto Fields(const Snapshot& m) { return std::tie(m.generation, m.sequence, m.state); }
auto Fields(const EvaluationDone& m) {
  return std::tie(m.generation, m.first, m.loss_sum, m.correct, m.samples, m.counts);
}
auto Fields(const Telemetry& m) {
  std::vector<FigureValue> values;
  std::vector<Histogram> histograms;
  for (const FigureField& field : FigureFields()) {
    values.push_back(ShownValue(field, {}, m, {}));
    if (const auto* one = std::get_if<Histogram Telemetry::*>(&field.member))
      histograms.push_back(m.**one);
  }
  return std::make_tuple(m.generation, m.energy_source, values, histograms);
}
auto Fields(const StageFailed& m) {
  const auto& [a, b, c, d, e] = m;
  return std::tie(a, b, c, d, e);
}
auto Fields(const Welcome& m) { return std::tie(m.device, m.run, m.life); }
auto Fields(const Awaiting& m) { return std::tie(m.here, m.wanted); }
auto Fields(const Refused& m) { return std::tie(m.reason, m.is_final); }
auto Fields(const ProfileRequest& m) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, l, n, o] = m;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, n, o);
}
auto Fields(const PrepareStage& m) {
  const auto& [a, b, c, d, e, f, g, h, i, j, k, target, shaping, l, changes, draws, over, replica,
               n] = m;
  const auto& [megabits, delay] = shaping;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, target, megabits, delay, l, changes, draws, over,
                  replica, n);
}
auto Fields(const RunUntil& m) { return std::tie(m.generation, m.limit, m.changes); }
auto Fields(const SnapshotRequest& m) { return std::tie(m.generation, m.sequence, m.weights_only); }
auto Fields(const EvaluateRequest& m) { return std::tie(m.generation, m.first, m.micro_batches); }
auto Fields(const DryRunRequest& m) {
  return std::tie(m.generation, m.first, m.micro_batches, m.coded);
}
auto Fields(const TraceRequest& m) { return std::tie(m.window_ns, m.id); }
auto Fields(const TraceReport& m) { return std::tie(m.spans, m.left_out, m.id); }
auto Fields(const DryRunDone& m) { return std::tie(m.generation, m.first, m.sums); }
auto Fields(const Release&) { return std::tuple<>(); }
auto Fields(const LayersFetched& m) { return std::tie(m.generation, m.state); }
auto Fields(const StagePrepared& m) { return std::tie(m.generation, m.numerics_class); }
auto Fields(const ProfileFailed& m) { return std::tie(m.reason, m.unfit, m.generation); }
auto Fields(const FetchLayers& m) { return std::tie(m.generation, m.ranges, m.replica); }
auto Fields(const Replicate& m) { return std::tie(m.id, m.holders); }
auto Fields(const CommitReplicas& m) { return std::tie(m.id); }
auto Fields(const Replicated& m) {
  const auto& [a, b, c, d, e] = m;
  return std::tie(a, b, c, d, e);
}
auto Fields(const ProgramReport& m) { return std::tie(m.generation, m.listing, m.failure); }
auto Fields(const ProgramRequest& m) {
  const auto& [a, b, c, d, e, f, g, h, i] = m;
  return std::tie(a, b, c, d, e, f, g, h, i);
}
auto Fields(const CommitPlan& m) { return std::tie(m.generation); }
auto Fields(const RelayWanted& m) { return std::tie(m.ticket, m.from); }
auto Fields(const AbortPlan& m) { return std::tie(m.generation); }

template <typename Message>
bool Same(const Message& a, const Message& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&b](const auto& one) {
        return Fields(one) == Fields(std::get<std::decay_t<decltype(one)>>(b));
      },
      a);
}

// The message through its serialized form.
template <typename Message>
absl::StatusOr<Message> Travel(const Message& message) {
  auto wire = ToProto(message);
  decltype(wire) arrived;
  if (!arrived.ParseFromString(wire.SerializeAsString())) {
    return absl::InternalError("cannot be parsed");
  }
  return FromProto(std::move(arrived));
}

TEST(ControlConvert, EveryMessageRoundTrips) {
  RandomControlMessages random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < std::variant_size_v<WorkerMessage>; ++i) {
      const WorkerMessage message = random.FromWorker(i);
      const absl::StatusOr<WorkerMessage> back = Travel(message);
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_TRUE(Same(message, *back)) << ToProto(message).DebugString();
    }
    for (size_t i = 0; i < std::variant_size_v<CentralMessage>; ++i) {
      const CentralMessage message = random.FromCentral(i);
      const absl::StatusOr<CentralMessage> back = Travel(message);
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_TRUE(Same(message, *back)) << ToProto(message).DebugString();
    }
  }
}

TEST(ControlConvert, ModelsOfTheZooRoundTrip) {
  for (const ModelRow& row : BuiltinModels()) {
    const ModelSpec model = row.make();
    const absl::StatusOr<ModelSpec> back = FromProto(ToProto(model));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, model) << row.name;
  }
}

TEST(ControlConvert, NanLossIsNewsNotAnError) {
  EvaluationDone done;
  done.loss_sum = kNan;
  EXPECT_TRUE(Travel(WorkerMessage(done)).ok());
  Telemetry telemetry;
  telemetry.loss_sum = kInfinity;
  EXPECT_TRUE(Travel(WorkerMessage(telemetry)).ok());
}

TEST(ControlConvert, TextThatIsNotUtf8StillArrives) {
  const absl::StatusOr<WorkerMessage> back =
      Travel(WorkerMessage(StageFailed{Generation(1), "a\xFF\xC3(b\nc\xED\xA0\x80\xC3\xA4"}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<StageFailed>(*back).reason,
            "a?"
            "?(b c??"
            "?\xC3\xA4");
}

TEST(ControlConvert, LongReasonIsCut) {
  const absl::StatusOr<CentralMessage> back =
      Travel(CentralMessage(Refused{std::string(100'000, 'x')}));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<Refused>(*back).reason.size(), 4096u);
}

TEST(ControlConvert, HelloOfAnotherVersionPassesAsItIs) {
  proto::FromWorker wire;
  wire.mutable_hello()->set_protocol_version(kProtocolVersion + 1);
  wire.mutable_hello()->set_name("old");
  const absl::StatusOr<WorkerMessage> hello = FromProto(wire);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_EQ(std::get<WorkerHello>(*hello).protocol_version, kProtocolVersion + 1);
  // A name reaches log lines whatever the version is.
  for (const char* name : {"", "../x", "a\nb", "-a", "a b", "\x1b[2J"}) {
    wire.mutable_hello()->set_name(name);
    EXPECT_THAT(std::string(FromProto(wire).status().message()), HasSubstr("hello.name")) << name;
  }
}

struct BadWorkerField {
  size_t index;  // of the variant
  std::function<void(proto::FromWorker&)> spoil;
  const char* named;
};

proto::Tensor& FirstTensor(proto::FromWorker& m) {
  return *m.mutable_snapshot()->mutable_state()->mutable_layers(0)->mutable_tensors(0);
}

// One more, which is as it should be.
proto::Processor& HelloProcessor(proto::FromWorker& m) {
  proto::Processor& processor = *m.mutable_hello()->mutable_processor_list()->add_processors();
  processor.set_backend("opencl");
  return processor;
}

const BadWorkerField kBadWorkerFields[] = {
    {0, [](auto& m) { m.mutable_hello()->set_name(""); }, "hello.name"},
    {0, [](auto& m) { m.mutable_hello()->set_name("a/b"); }, "hello.name"},
    {0, [](auto& m) { m.mutable_hello()->set_name(std::string(65, 'a')); }, "hello.name"},
    {0, [](auto& m) { m.mutable_hello()->set_data_address(std::string(300, 'x')); },
     "hello.data_address"},
    {0, [](auto& m) { m.mutable_hello()->set_secret(std::string(300, 'x')); }, "hello.secret"},
    {0, [](auto& m) { m.mutable_hello()->set_backend(std::string(300, 'x')); }, "hello.backend"},
    {0,
     [](auto& m) {
       while (m.hello().processor_list().processors_size() <= 8) HelloProcessor(m);
     },
     "hello.processor_list"},
    {1, [](auto& m) { m.mutable_profile_report()->set_backend(std::string(300, 'x')); },
     "profile_report.backend"},
    {1, [](auto& m) { m.mutable_profile_report()->set_choice(std::string(5000, 'x')); },
     "profile_report.choice"},
    {18,
     [](auto& m) {
       proto::ProcessorList& list = *m.mutable_processor_list();
       while (list.processors_size() <= 8) *list.add_processors() = list.processors(0);
     },
     "processor_list"},
    {0,
     [](auto& m) {
       for (int i = 0; i < 300; ++i) m.mutable_hello()->add_codecs()->set_name("c");
     },
     "hello.codecs"},
    {0, [](auto& m) { m.mutable_hello()->add_codecs(); }, "].name"},
    {0, [](auto& m) { m.mutable_hello()->mutable_codecs(0)->set_kind(3); }, "hello.codecs[0].kind"},
    {0, [](auto& m) { m.mutable_hello()->mutable_codecs(0)->set_min(kNan); },
     "hello.codecs[0].min"},
    {0, [](auto& m) { m.mutable_hello()->mutable_codecs(0)->set_max(-1); }, "hello.codecs[0].max"},
    {0,
     [](auto& m) {
       m.mutable_hello()->mutable_codecs(0)->set_kind(1);
       m.mutable_hello()->mutable_codecs(0)->set_step(0);
     },
     "hello.codecs[0].step"},
    {0, [](auto& m) { m.mutable_hello()->add_recipes(""); }, "hello.recipes"},
    {1, [](auto& m) { m.mutable_profile_report()->clear_layer_seconds(); }, "layer_seconds"},
    {1, [](auto& m) { m.mutable_profile_report()->add_layer_seconds(kNan); }, "layer_seconds"},
    {1, [](auto& m) { m.mutable_profile_report()->add_layer_seconds(-1); }, "layer_seconds"},
    {1, [](auto& m) { m.mutable_profile_report()->mutable_layer_seconds()->Resize(4097, 1.0); },
     "layer_seconds"},
    {1, [](auto& m) { m.mutable_profile_report()->clear_spreads(); }, "profile_report.spreads"},
    {1, [](auto& m) { m.mutable_profile_report()->set_spreads(0, -1); }, "profile_report.spreads"},
    {1, [](auto& m) { m.mutable_profile_report()->set_spreads(0, kNan); }, "report.spreads"},
    {1, [](auto& m) { m.mutable_profile_report()->set_processor_share(0); }, "processor_share"},
    {1, [](auto& m) { m.mutable_profile_report()->set_processor_share(1.5); }, "processor_share"},
    {1, [](auto& m) { m.mutable_profile_report()->set_processor_share(kNan); }, "processor_share"},
    {2, [](auto& m) { m.mutable_stage_ready()->set_generation(-1); }, "stage_ready.generation"},
    {3, [](auto& m) { m.mutable_barrier_reached()->set_sequence(-1); }, "barrier_reached.seq"},
    {4, [](auto& m) { m.mutable_snapshot()->set_sequence(-5); }, "snapshot.sequence"},
    {4, [](auto& m) { FirstTensor(m).set_dtype(99); }, "state.layers[0].tensors[0].dtype"},
    {4, [](auto& m) { FirstTensor(m).add_shape(0); }, "state.layers[0].tensors[0].shape"},
    {4, [](auto& m) { FirstTensor(m).mutable_shape()->Resize(7, 1); }, "tensors[0].shape"},
    {4, [](auto& m) { FirstTensor(m).add_shape(int64_t{1} << 40); }, "tensors[0].shape"},
    {4, [](auto& m) { FirstTensor(m).mutable_data()->push_back('x'); }, "tensors[0].data"},
    {4, [](auto& m) { m.mutable_snapshot()->mutable_state()->mutable_layers(1)->set_layer(0); },
     "state.layers[1].layer"},
    {4, [](auto& m) { m.mutable_snapshot()->mutable_state()->mutable_layers(1)->set_layer(4096); },
     "state.layers[1].layer"},
    {4, [](auto& m) { m.mutable_snapshot()->mutable_state()->add_encoders()->set_boundary(-1); },
     "boundary"},
    {5, [](auto& m) { m.mutable_evaluation_done()->set_correct(int64_t{1} << 60); },
     "evaluation_done.correct"},
    {6, [](auto& m) { m.mutable_telemetry()->set_bytes_up(-1); }, "telemetry.bytes_up"},
    {6, [](auto& m) { m.mutable_telemetry()->set_correct(int64_t{1} << 60); }, "telemetry.correct"},
    {6, [](auto& m) { m.mutable_telemetry()->mutable_wait_times()->add_counts(1); },
     "telemetry.wait_times.counts: has"},
    {6, [](auto& m) { m.mutable_telemetry()->mutable_wait_times()->set_counts(2, -1); },
     "telemetry.wait_times.counts"},
    {6, [](auto& m) { m.mutable_telemetry()->set_battery_charge(1.5); }, "battery_charge"},
    {6, [](auto& m) { m.mutable_telemetry()->set_macs_done(kInfinity); }, "telemetry.macs_done"},
    {6, [](auto& m) { m.mutable_telemetry()->set_effective_macs(1e25); }, "effective_macs"},
    {7, [](auto& m) { m.mutable_stage_failed()->set_reason(std::string(5000, 'x')); },
     "stage_failed.reason"},
    {10, [](auto& m) { m.mutable_profile_failed()->set_reason(std::string(5000, 'x')); },
     "profile_failed.reason"},
    {15, [](auto& m) { m.mutable_heartbeat()->set_phase(5); }, "heartbeat.phase"},
    {15, [](auto& m) { m.mutable_heartbeat()->set_progress(-1); }, "heartbeat.progress"},
    {0, [](auto& m) { m.mutable_hello()->set_incarnation(-1); }, "hello.incarnation"},
    {7, [](auto& m) { m.Clear(); }, "message"},
    {7, [](auto& m) { m.mutable_part()->set_last(true); }, "message"},
};

TEST(ControlConvert, BadFieldsOfWorkersAreNamed) {
  RandomControlMessages random(kSeed);
  for (const BadWorkerField& row : kBadWorkerFields) {
    WorkerMessage message = random.FromWorker(row.index);
    if (auto* snapshot = std::get_if<Snapshot>(&message)) {
      TensorData tensor{"w", DType::kFloat32, {2}, std::string(8, 'x')};
      snapshot->state = {{{0, {tensor}, {}}, {3, {}, {}}}, {}};
    }
    proto::FromWorker wire = ToProto(message);
    ASSERT_TRUE(FromProto(wire).ok()) << FromProto(wire).status();
    row.spoil(wire);
    const absl::Status status = FromProto(wire).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.named;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.named));
  }
}

// A stage does 10^15 multiply-adds in three hours, and goes on.
TEST(ControlConvert, AStageMayHaveDoneManyMultiplyAdds) {
  RandomControlMessages random(kSeed);
  Telemetry telemetry = random.Figures(Generation(1));
  telemetry.effective_macs = 3e15;
  telemetry.macs_done = 5e18;
  const absl::StatusOr<WorkerMessage> back = FromProto(ToProto(WorkerMessage(telemetry)));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(std::get<Telemetry>(*back).effective_macs, 3e15);
  EXPECT_EQ(std::get<Telemetry>(*back).macs_done, 5e18);
}

struct BadPrepareField {
  std::function<void(proto::PrepareStage&)> spoil;
  const char* named;
};

// The setting of that name, added if it is not stored.
proto::Setting& Training(proto::PrepareStage& m, const std::string& name) {
  for (proto::Setting& setting : *m.mutable_training()->mutable_settings()) {
    if (setting.name() == name) return setting;
  }
  proto::Setting& added = *m.mutable_training()->add_settings();
  added.set_name(name);
  return added;
}

proto::Op& FirstOp(proto::PrepareStage& m) {
  return *m.mutable_model()->mutable_layers(0)->mutable_ops(0);
}

const BadPrepareField kBadPrepareFields[] = {
    {[](auto& m) { m.set_stage(-1); }, "prepare_stage.stage"},
    {[](auto& m) { m.set_stage(2); }, "prepare_stage.stage"},
    {[](auto& m) { m.set_plain_loop(true); }, "prepare_stage.plain_loop"},
    {[](auto& m) { m.set_recipe(""); }, "prepare_stage.recipe"},
    {[](auto& m) { m.set_backend(""); }, "prepare_stage.backend"},
    {[](auto& m) { m.set_link_token("\x01"); }, "prepare_stage.link_token"},
    {[](auto& m) { m.set_link_greeting("\x01"); }, "prepare_stage.link_greeting"},
    {[](auto& m) { m.set_upstream_peer("\x01"); }, "prepare_stage.upstream_peer"},
    {[](auto& m) { m.mutable_downstream()->set_peer("\x01"); }, "downstream.peer"},
    {[](auto& m) { m.set_link_delay_ms(kNan); }, "prepare_stage.link_delay_ms"},
    {[](auto& m) { m.set_link_megabits_per_second(-1); }, "link_megabits_per_second"},
    {[](auto& m) { m.set_eval_samples(-1); }, "prepare_stage.eval_samples"},
    {[](auto& m) { m.set_first_sequence(-1); }, "prepare_stage.first_sequence"},
    {[](auto& m) { m.mutable_plan()->clear_stages(); }, "plan.stages"},
    {[](auto& m) { m.mutable_plan()->clear_links(); }, "plan.links"},
    {[](auto& m) { m.mutable_plan()->set_generation(-1); }, "plan.generation"},
    {[](auto& m) { m.mutable_plan()->mutable_stages(0)->set_cap(0); }, "plan.stages[0].cap"},
    {[](auto& m) { m.mutable_plan()->mutable_stages(0)->set_deferred_weight_gradients(-1); },
     "plan.stages[0].deferred_weight_gradients"},
    {[](auto& m) { m.mutable_plan()->mutable_stages(0)->set_device(-1); }, "stages[0].device"},
    {[](auto& m) { m.mutable_plan()->mutable_stages(1)->set_last_layer(3000); }, "plan: covers"},
    {[](auto& m) { m.mutable_plan()->mutable_stages(1)->set_first_layer(0); }, "plan: stage 1"},
    {[](auto& m) { m.mutable_plan()->mutable_links(0)->set_codec_forward(""); },
     "plan.links[0].codec_forward"},
    {[](auto& m) { m.mutable_model()->set_name(""); }, "model.name"},
    {[](auto& m) { m.mutable_model()->add_input(-2); }, "model.input"},
    {[](auto& m) { m.mutable_model()->set_classes(0); }, "model.classes"},
    {[](auto& m) { m.mutable_model()->clear_layers(); }, "model.layers"},
    {[](auto& m) {
       for (int i = 0; i < 4097; ++i) m.mutable_model()->add_layers();
     },
     "model.layers"},
    {[](auto& m) {
       for (int i = 0; i < 257; ++i) *m.mutable_model()->mutable_layers(0)->add_ops() = FirstOp(m);
     },
     "model.layers[0].ops"},
    {[](auto& m) { m.mutable_model()->mutable_layers(0)->set_name(std::string(257, 'n')); },
     "model.layers[0].name"},
    {[](auto& m) { FirstOp(m).set_kind("magic"); }, "model.layers[0].ops[0].kind"},
    {[](auto& m) { FirstOp(m).clear_inputs(); }, "ops[0].inputs"},
    {[](auto& m) { FirstOp(m).set_inputs(0, -1); }, "ops[0].inputs"},
    {[](auto& m) { FirstOp(m).set_inputs(0, 5); }, "reads value 5"},
    {[](auto& m) { FirstOp(m).add_kernel(1); }, "ops[0].kernel"},
    {[](auto& m) { FirstOp(m).set_stride(1, 0); }, "ops[0].stride"},
    {[](auto& m) { FirstOp(m).clear_padding(); }, "ops[0].padding"},
    {[](auto& m) { FirstOp(m).set_groups(0); }, "ops[0].groups"},
    {[](auto& m) { FirstOp(m).set_out_channels(-1); }, "ops[0].out_channels"},
    {[](auto& m) { FirstOp(m).set_rate(kNan); }, "ops[0].rate"},
    {[](auto& m) { FirstOp(m).set_epsilon(kInfinity); }, "ops[0].epsilon"},
    {[](auto& m) { FirstOp(m).set_init(0); }, "ops[0].init"},
    {[](auto& m) { FirstOp(m).set_init(5); }, "ops[0].init"},
    {[](auto& m) { FirstOp(m).set_init_std(-1); }, "ops[0].init_std"},
    {[](auto& m) { Training(m, "batch_size").set_integer(0); }, "training.batch_size"},
    {[](auto& m) { Training(m, "batch_size").set_real(8); }, "training.batch_size: is no integer"},
    {[](auto& m) { Training(m, "batch_size").set_name("batch"); }, "training.batch: is no setting"},
    {[](auto& m) { Training(m, "batch_size").set_name("momentum"); },
     "training.momentum: is given twice"},
    {[](auto& m) { Training(m, "batch_size").set_name("a\nb"); }, "training.settings.name"},
    {[](auto& m) { Training(m, "batch_size").clear_value(); }, "training.batch_size"},
    {[](auto& m) { m.mutable_training()->mutable_settings()->DeleteSubrange(2, 1); },
     "training.batch_size: is missing"},
    {[](auto& m) {
       for (int i = 0; i < 99; ++i) m.mutable_training()->add_settings();
     },
     "training.settings"},
    {[](auto& m) { Training(m, "micro_batches").set_integer(0); }, "training.micro_batches"},
    {[](auto& m) { Training(m, "learning_rate").set_real(kNan); }, "training.learning_rate"},
    {[](auto& m) { Training(m, "milestones").mutable_integers()->add_values(-3); },
     "training.milestones"},
    {[](auto& m) {
       for (int i = 0; i < 5000; ++i) {
         Training(m, "milestones").mutable_integers()->add_values(i + 1);
       }
     },
     "training.milestones: has "},
    {[](auto& m) { Training(m, "min_samples").set_integer(1 << 29); }, "training: "},
    {[](auto& m) { Training(m, "gradient_bits").set_text("99"); },
     "training.gradient_bits: 99 bits"},
    {[](auto& m) { Training(m, "rescale").set_text("adaptive:5,0"); },
     "training.rescale: must be dynamic, speculate"},
    {[](auto& m) { Training(m, "batch_split").set_text("shifted:0"); },
     "training.batch_split: must be off, auto, N or shifted:N"},
    {[](auto& m) { Training(m, "gradient_bits").set_text("3:2"); },
     "training.gradient_bits: epoch 3"},
    {[](auto& m) { Training(m, "gradient_bits").set_text(std::string(70000, '1')); },
     "training.gradient_bits: has 70000 bytes"},
    {[](auto& m) { Training(m, "augment").set_integer(1); }, "training.augment: is no text"},
    {[](auto& m) { Training(m, "augment").set_text(std::string(70000, 'x')); },
     "training.augment: has 70000 bytes"},
    {[](auto& m) { Training(m, "look_ahead").set_real(2); }, "training.look_ahead"},
    {[](auto& m) { Training(m, "raised_look_ahead").set_real(-1); }, "training.raised_look_ahead"},
    {[](auto& m) { Training(m, "aggregate_every").set_integer(-1); }, "training.aggregate_every"},
};

TEST(ControlConvert, ZerosTravelWithoutTheirBytes) {
  const TensorData zeros{"m", DType::kFloat32, {2}, std::string(8, '\0')};
  const TensorData ones{"w", DType::kFloat32, {2}, std::string(7, '\0') + '\1'};
  const ModelState state = {{{0, {ones}, {zeros}}}, {}};
  const proto::FromWorker wire = ToProto(Snapshot{Generation(1), Sequence(1), state});
  EXPECT_LT(wire.ByteSizeLong(), 50u);
  const absl::StatusOr<WorkerMessage> back = FromProto(wire);
  ASSERT_TRUE(back.ok()) << back.status();
  ModelState arrived = std::get<Snapshot>(*back).state;
  EXPECT_EQ(arrived.layers[0].slots[0].bytes, "");
  FillZeros(arrived);
  EXPECT_TRUE(arrived == state);
  // In a file they have them all.
  const absl::StatusOr<ModelState> read = FromProto(ToProto(state));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == state);
  EXPECT_THAT(std::string(FromProto(wire.snapshot().state()).status().message()),
              HasSubstr("slots[0].data: has 0 bytes"));
}

TEST(ControlConvert, AStateIsDrawnOrSent) {
  RandomControlMessages random(kSeed);
  PrepareStage prepare = std::get<PrepareStage>(random.FromCentral(3));
  prepare.draws_state = true;
  prepare.state.layers.clear();
  const absl::StatusOr<CentralMessage> back = FromProto(ToProto(CentralMessage(prepare)));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(std::get<PrepareStage>(*back).draws_state);
  prepare.state.layers.resize(1);
  EXPECT_THAT(std::string(FromProto(ToProto(CentralMessage(prepare))).status().message()),
              HasSubstr("prepare_stage.draws_state"));
}

TEST(ControlConvert, BadFieldsOfPrepareStageAreNamed) {
  RandomControlMessages random(kSeed);
  CentralMessage message = random.FromCentral(3);
  PrepareStage& prepare = std::get<PrepareStage>(message);
  const int last = prepare.model.layer_count() - 1;
  prepare.plan.stages = {{{Seat{DeviceId(0)}}, 0, 0, 2}, {{Seat{DeviceId(1)}}, 1, last, 1}};
  prepare.plan.links.resize(1);
  prepare.stage = 1;
  prepare.plain_loop = false;
  const proto::FromCentral good = ToProto(message);
  ASSERT_TRUE(FromProto(good).ok()) << FromProto(good).status();
  for (const BadPrepareField& row : kBadPrepareFields) {
    proto::FromCentral wire = good;
    row.spoil(*wire.mutable_prepare_stage());
    const absl::Status status = FromProto(wire).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << row.named;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.named));
  }
}

TEST(ControlConvert, BadFieldsOfOtherMessagesOfCentralAreNamed) {
  const auto error = [](const std::function<void(proto::FromCentral&)>& fill) {
    proto::FromCentral wire;
    fill(wire);
    return std::string(FromProto(std::move(wire)).status().message());
  };
  EXPECT_THAT(error([](auto& m) { m.mutable_welcome()->set_device(-1); }), HasSubstr("device"));
  EXPECT_THAT(error([](auto& m) { m.mutable_run_until()->set_limit(-1); }), HasSubstr("limit"));
  EXPECT_THAT(error([](auto& m) { m.mutable_snapshot_request()->set_sequence(-1); }),
              HasSubstr("snapshot_request.sequence"));
  EXPECT_THAT(error([](auto& m) { m.mutable_evaluate_request(); }), HasSubstr("micro_batches"));
  EXPECT_THAT(error([](auto& m) { m.mutable_profile_request(); }),
              HasSubstr("profile_request.recipe"));
  EXPECT_THAT(error([](auto&) {}), HasSubstr("message"));
}

// A model whose shapes fit but whose work does not fit an integer.
TEST(ControlConvert, ModelOfTooMuchWorkIsRefused) {
  ModelSpec model{"m", {1, 1 << 16, 1 << 16}, 10, {}};
  OpSpec conv;
  conv.kind = OpKind::kConv;
  conv.inputs = {0};
  conv.out_channels = 1;
  conv.kernel = {1 << 16, 1 << 16};
  conv.padding = {1 << 15, 1 << 15};
  model.layers = {{"c", {conv}}};
  EXPECT_THAT(std::string(FromProto(ToProto(model)).status().message()),
              HasSubstr("multiply-accumulates"));
}

// Changes, drops, repeats and cuts bytes.
std::string Mutate(std::string bytes, std::mt19937_64& engine) {
  const auto below = [&engine](size_t bound) { return engine() % bound; };
  for (size_t i = 1 + below(4); i > 0 && !bytes.empty(); --i) {
    const size_t at = below(bytes.size());
    switch (below(5)) {
      case 0:
        bytes[at] = static_cast<char>(engine());
        break;
      case 1:
        bytes[at] ^= static_cast<char>(1u << below(8));
        break;
      case 2:
        bytes.erase(at, 1 + below(8));
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, 1 + below(16)));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

// Parses and converts; counts in `outcomes` what became of it: {refused, converted}.
template <typename Wire>
void TryConvert(const std::string& bytes, int (&outcomes)[2]) {
  Wire wire;
  if (!wire.ParseFromString(bytes)) return;
  const absl::Status status = FromProto(std::move(wire)).status();
  ++outcomes[status.ok()];
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
}

TEST(ControlConvert, MutatedBytesNeverHarm) {
  RandomControlMessages random(kSeed);
  std::mt19937_64 engine(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  int outcomes[2] = {0, 0};
  for (int round = 0; round < 400; ++round) {
    const std::string from_worker = ToProto(random.FromWorker(round % 8)).SerializeAsString();
    const std::string from_central = ToProto(random.FromCentral(round % 8)).SerializeAsString();
    for (int i = 0; i < 20; ++i) {
      TryConvert<proto::FromWorker>(Mutate(from_worker, engine), outcomes);
      TryConvert<proto::FromCentral>(Mutate(from_central, engine), outcomes);
    }
  }
  // The mutations reach the checks and pass them at times: neither path is left out.
  EXPECT_GT(outcomes[0], 100);
  EXPECT_GT(outcomes[1], 100);
}

// What one device hands over for another is no number that spoils the rest.
TEST(ControlConvert, LayersThatMoveAreFinite) {
  const auto read = [](float value, DType dtype) {
    LayersFetched fetched{Generation(1), {}};
    std::string bytes(8, '\0');
    std::memcpy(&bytes[4], &value, sizeof(value));
    fetched.state.layers = {{3, {{"0.weight", dtype, {2}, bytes}}, {}}};
    return FromProto(ToProto(WorkerMessage(fetched))).status();
  };
  EXPECT_TRUE(read(-3e38f, DType::kFloat32).ok());
  for (const double value : {kNan, kInfinity, -kInfinity}) {
    const absl::Status status = read(static_cast<float>(value), DType::kFloat32);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << value;
    EXPECT_THAT(status.ToString(), HasSubstr("layers_fetched.state: layer 3, 0.weight"));
  }
}

}  // namespace
}  // namespace runnel::control_convert_test
