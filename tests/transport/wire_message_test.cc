// Limits of fields as the .proto files give them, and the lists of fields of the structs.

#include "proto/transport/control/wire_message.h"

#include <limits>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.pb.h"
#include "proto/limit.pb.h"
#include "proto/transport/control/control_convert.h"
#include "proto/transport/control/control_fields.h"
#include "tests/transport/control_messages.h"

namespace runnel::wire_message_test {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20260102;

std::string Refusal(const google::protobuf::Message& message) {
  return std::string(CheckMessage(message, {"m"}).message());
}

TEST(WireMessage, EachKindOfLimitIsKept) {
  proto::RunUntil until;
  EXPECT_EQ(Refusal(until), "") << "changes, which must have a step, may be missing";
  until.add_changes();
  EXPECT_THAT(Refusal(until), HasSubstr("m.changes[0].from_step: 0 is not in 1.."));
  until.clear_changes();
  until.set_limit((int64_t{1} << 62) + 1);
  EXPECT_THAT(Refusal(until), HasSubstr("m.limit: 4611686018427387905 is not in 0..46116860184"));
  proto::WayMeasured way;
  way.set_ns((int64_t{1} << 40) + 1);
  EXPECT_THAT(Refusal(way), HasSubstr("m.ns: 1099511627777 is not in 0..1099511627776"));
  way.set_ns(1);
  way.set_bytes_per_second(std::numeric_limits<double>::infinity());
  EXPECT_THAT(Refusal(way), HasSubstr("m.bytes_per_second: inf is not a number in 0..1e+15"));
  proto::Telemetry telemetry;
  telemetry.set_loss_sum(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(Refusal(telemetry), "") << "news, not an error";
  telemetry.set_generation(-1);
  EXPECT_THAT(Refusal(telemetry), HasSubstr("m.generation: -1 is not in 0..2147483647"));
}

TEST(WireMessage, TextsAreBounded) {
  proto::RelayWanted wanted;
  EXPECT_EQ(Refusal(wanted), "m.ticket: is empty");
  wanted.set_ticket("t");
  wanted.set_from(std::string(257, 'x'));
  EXPECT_EQ(Refusal(wanted), "m.from: 257 bytes are over 256");
  wanted.set_from("a\nb");
  EXPECT_EQ(Refusal(wanted), "m.from: has a control character");
  proto::Refused refused;
  refused.set_reason(std::string(4096, '\n'));
  EXPECT_EQ(Refusal(refused), "") << "read as one line";
  refused.set_reason(std::string(4097, 'x'));
  EXPECT_EQ(Refusal(refused), "m.reason: 4097 bytes are over 4096");
  proto::ProbePiece piece;
  piece.set_count(1);
  piece.set_padding(std::string(65537, '\0'));
  EXPECT_EQ(Refusal(piece), "m.padding: 65537 bytes are over 65536");
}

TEST(WireMessage, ListsAndWhatIsInThem) {
  proto::ProgramReport report;
  for (int i = 0; i < 17; ++i) report.add_processors("cpu");
  EXPECT_EQ(Refusal(report), "m.processors: has 17 entries, not 0..16");
  report.mutable_processors()->DeleteSubrange(0, 15);
  report.add_processors("");
  EXPECT_EQ(Refusal(report), "m.processors[2]: is empty");
  report.mutable_processors()->RemoveLast();
  report.add_lines();
  report.add_lines()->set_layer(4096);
  EXPECT_EQ(Refusal(report), "m.lines[1].layer: 4096 is not in 0..4095");
  report.mutable_lines()->RemoveLast();
  report.mutable_layers()->set_last_layer(-1);
  EXPECT_THAT(Refusal(report), HasSubstr("m.layers.last_layer: -1 is not in"));
}

// Messages and files of models without the fields are those of the time before them.
TEST(WireMessage, AnArrayMayBeUnsaid) {
  // Reading takes texts out of the message.
  const auto read = [](proto::Op message) { return ReadFields<OpSpec>(message, {"op"}); };
  OpSpec op;
  op.inputs = {0};
  auto message = WriteFields<proto::Op>(op);
  EXPECT_EQ(message.padding_end_size() + message.dilation_size(), 0);
  EXPECT_EQ(read(message).value(), op);
  op.dilation = {1, 3};
  op.padding_end = {-1, 2};
  message = WriteFields<proto::Op>(op);
  EXPECT_EQ(read(message).value(), op);
  message.mutable_dilation()->RemoveLast();
  EXPECT_EQ(read(message).status().message(), "op.dilation: has 1 entries, not 0 or 2");
}

// The names that a struct lists.
struct ListedNames {
  std::set<std::string> names;
  template <typename T>
  ListedNames& operator()(const char* name, T&) {
    names.insert(name);
    return *this;
  }
};

template <typename Message>
void ExpectAllListed(Message message) {
  const auto wire = ToProto(message);
  const auto* reflection = wire.GetReflection();
  const auto* set = reflection->GetOneofFieldDescriptor(wire, wire.GetDescriptor()->oneof_decl(0));
  ListedNames listed;
  std::visit([&listed](auto& one) { ListFields(listed, one); }, message);
  for (int i = 0; i < set->message_type()->field_count(); ++i) {
    const std::string& name = set->message_type()->field(i)->name();
    EXPECT_EQ(listed.names.count(name), 1u) << set->name() << "." << name << " never arrives";
  }
}

TEST(WireMessage, EveryFieldIsListed) {
  RandomControlMessages random(kSeed);
  for (size_t i = 0; i < std::variant_size_v<WorkerMessage>; ++i)
    ExpectAllListed(random.FromWorker(i));
  for (size_t i = 0; i < std::variant_size_v<CentralMessage>; ++i)
    ExpectAllListed(random.FromCentral(i));
}

// Limits in .proto files that repeat a number of the code.
TEST(WireMessage, LimitsAreThoseOfTheCode) {
  const auto limit = [](const google::protobuf::Descriptor* type, const char* field) {
    return type->FindFieldByName(field)->options().GetExtension(proto::limit);
  };
  EXPECT_EQ(limit(proto::Heartbeat::descriptor(), "phase").max(),
            static_cast<double>(WorkerPhase::kTraining));
  EXPECT_EQ(limit(proto::Telemetry::descriptor(), "energy_source").max(), kEnergySourceCount - 1);
  EXPECT_EQ(limit(proto::CodecFamily::descriptor(), "kind").max(),
            static_cast<double>(ParameterRange::Kind::kRatio));
  EXPECT_EQ(limit(proto::Processor::descriptor(), "state").max(), kProcessorStateCount - 1);
  EXPECT_EQ(limit(proto::ProcessorList::descriptor(), "processors").most(), kMaxProcessorFacts);
  EXPECT_EQ(limit(proto::Op::descriptor(), "init").max(),
            static_cast<double>(InitKind::kXavierNormal));
  EXPECT_EQ(limit(proto::Op::descriptor(), "out_channels").max(), Shape::kMaxElements);
  EXPECT_EQ(limit(proto::Layer::descriptor(), "ops").most(), kMaxOpsPerLayer);
  EXPECT_EQ(limit(proto::StagePlan::descriptor(), "last_layer").max(), kMaxLayers - 1);
  EXPECT_EQ(limit(proto::ProbePiece::descriptor(), "count").max(), kMaxProbePieces);
  EXPECT_EQ(limit(proto::ProbePiece::descriptor(), "padding").most(), kMaxProbePieceBytes);
  EXPECT_EQ(limit(proto::ProfileRequest::descriptor(), "ranges").most(), kMaxProfileRanges);
  EXPECT_EQ(limit(proto::ProfileRequest::descriptor(), "cost_codecs").most(), kMaxCostCodecs);
}

}  // namespace
}  // namespace runnel::wire_message_test
