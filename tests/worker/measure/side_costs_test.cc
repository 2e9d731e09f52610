// Coding and transport, measured with the real ones. Figures are only compared with 0 and with what
// no machine reaches.

#include "worker/measure/side_costs.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/transport/grpc/data/grpc_transport.h"

namespace runnel::side_costs_test {
namespace {

TEST(SideCosts, TheDearestCodecCounts) {
  const double one = MeasureCoding({"identity"}).value();
  EXPECT_GT(one, 0);
  EXPECT_LT(one, 1e-3);
  EXPECT_GT(MeasureCoding({"identity", "mbq:8"}).value(), one / 2);
  EXPECT_EQ(MeasureCoding({}).value(), 0);
  EXPECT_FALSE(MeasureCoding({"zip:3"}).ok());
}

TEST(SideCosts, FramesGoToThisProcessAndBack) {
  const std::unique_ptr<Transport> transport = MakeGrpcTransport({});
  const absl::StatusOr<TransportCosts> costs = MeasureTransport(*transport);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_GT(costs->frame_seconds, 0);
  EXPECT_LT(costs->frame_seconds, 1);
  EXPECT_GE(costs->byte_seconds, 0);
  EXPECT_LT(costs->byte_seconds, 1e-3);
  RecordProperty("frame_us", absl::StrCat(costs->frame_seconds * 1e6));
  RecordProperty("kilobyte_us", absl::StrCat(costs->byte_seconds * 1e9));
}

// Refuses to listen.
class NoTransport final : public Transport {
 public:
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string&, AcceptFn) override {
    return absl::UnavailableError("no socket");
  }
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const DialTarget&, ConnectionObserver*,
                                                   const LinkShaping&) override {
    return absl::UnavailableError("no socket");
  }
};

TEST(SideCosts, SaysWhyTheTransportCannotBeMeasured) {
  NoTransport transport;
  EXPECT_EQ(MeasureTransport(transport).status(), absl::UnavailableError("no socket"));
}

}  // namespace
}  // namespace runnel::side_costs_test
