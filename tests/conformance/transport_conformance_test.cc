// Every transport keeps the contract of proto/transport/link/transport.h.

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "proto/transport/grpc/data/grpc_transport.h"
#include "tests/conformance/transport_harness.h"

namespace runnel::transport_conformance_test {
namespace {

constexpr char kAnyPort[] = "127.0.0.1:0";

// What one side accepted or dialled. The connection goes before its observer.
struct Side {
  explicit Side(TransportLab* lab) : recorder(lab) {}
  Recorder recorder;
  std::shared_ptr<Connection> connection;
};

class TransportConformance : public ::testing::TestWithParam<TransportRow> {
 protected:
  void Listen(const LinkShaping& shaping = {}) {
    auto listener = lab_->acceptor().Listen(kAnyPort, [this, shaping](auto connection) {
      return Accept(std::move(connection), shaping);
    });
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }

  // On a transport thread.
  Accepted Accept(std::shared_ptr<Connection> connection, const LinkShaping& shaping) {
    auto side = std::make_unique<Side>(lab_.get());
    side->connection = std::move(connection);
    side->recorder.on_header = accepted_on_header_;
    Recorder* const recorder = &side->recorder;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      fresh_.push_back(std::move(side));
    }
    lab_->Post([] {});
    return {recorder, shaping};
  }

  std::unique_ptr<Side> Dial(const LinkShaping& shaping = {}) {
    auto side = std::make_unique<Side>(lab_.get());
    auto connection = lab_->dialler().Dial(listener_->address(), &side->recorder, shaping);
    EXPECT_TRUE(connection.ok()) << connection.status();
    side->connection = *std::move(connection);
    return side;
  }

  bool RunUntil(const std::function<bool()>& done) { return lab_->RunUntil(done); }

  // The next accepted side; null if none comes.
  std::unique_ptr<Side> TakeAccepted() {
    std::unique_ptr<Side> side;
    RunUntil([&] {
      std::lock_guard<std::mutex> lock(mutex_);
      if (fresh_.empty()) return false;
      side = std::move(fresh_.front());
      fresh_.erase(fresh_.begin());
      return true;
    });
    return side;
  }

  // Both ends of a new connection.
  std::pair<std::unique_ptr<Side>, std::unique_ptr<Side>> Connect(const LinkShaping& a = {},
                                                                  const LinkShaping& b = {}) {
    if (listener_ == nullptr) Listen(b);
    std::unique_ptr<Side> dialled = Dial(a);
    std::unique_ptr<Side> accepted = TakeAccepted();
    EXPECT_NE(accepted, nullptr);
    return {std::move(dialled), std::move(accepted)};
  }

  void ExpectIntact(const Recorder& recorder, size_t count) {
    ASSERT_TRUE(RunUntil([&] { return recorder.frames().size() >= count; }))
        << "only " << recorder.frames().size() << " of " << count << " frames came; "
        << recorder.status();
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(recorder.frames()[i].header.sequence, Sequence(static_cast<int64_t>(i)));
      EXPECT_EQ(WhatIsWrongWith(recorder.frames()[i]), "");
    }
    EXPECT_EQ(recorder.violations(), 0);
  }

  void ExpectClosed(const Recorder& recorder, absl::StatusCode code) {
    ASSERT_TRUE(RunUntil([&] { return recorder.closed(); })) << "OnClosed never came";
    EXPECT_EQ(recorder.status().code(), code) << recorder.status();
    EXPECT_EQ(recorder.violations(), 0);
  }

  // Before lab_: its threads call into it.
  std::mutex mutex_;
  std::vector<std::unique_ptr<Side>> fresh_;  // guarded by mutex_
  std::function<absl::Status(const FrameHeader&)> accepted_on_header_;
  std::unique_ptr<TransportLab> lab_ = GetParam().make();
  std::unique_ptr<Listener> listener_;
};

TEST_P(TransportConformance, FramesOfAllSizesArriveInOrderBothWays) {
  auto [a, b] = Connect();
  const std::vector<size_t> sizes = {
      0, 1, kDefaultChunkBytes - 1, kDefaultChunkBytes, kDefaultChunkBytes + 1, size_t{5} << 20,
      0, 63};
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(a->connection->Send(TestFrame(FrameKind::kActivation, i, sizes[i])).ok());
    ASSERT_TRUE(b->connection->Send(TestFrame(FrameKind::kGradient, i, sizes[i])).ok());
  }
  ExpectIntact(b->recorder, sizes.size());
  ExpectIntact(a->recorder, sizes.size());
  EXPECT_EQ(a->recorder.frames()[2].payload.size(), sizes[2]);
  EXPECT_TRUE(RunUntil([&, x = a->connection.get()] { return x->queued_bytes() == 0; }));
  EXPECT_FALSE(a->recorder.closed());
}

TEST_P(TransportConformance, ARefusedHeaderClosesWithItsStatusAndTakesNoMemory) {
  constexpr uint64_t kHuge = uint64_t{900} << 20;
  accepted_on_header_ = [](const FrameHeader& header) {
    return header.payload_bytes > 1000 ? absl::ResourceExhaustedError("no room for this")
                                       : absl::OkStatus();
  };
  auto [a, b] = Connect();
  Frame frame = TestFrame(FrameKind::kActivation, 0, 10);
  frame.header.payload_bytes = kHuge;
  ASSERT_TRUE(a->connection->Send(frame).ok());
  ExpectClosed(b->recorder, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(b->recorder.status().message(), "no room for this");
  ExpectClosed(a->recorder, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(b->recorder.frames().empty());
  EXPECT_EQ(lab_->blocks_made(), 0);
}

TEST_P(TransportConformance, TheDiallingEndRefusesLikewise) {
  Listen();
  auto a = std::make_unique<Side>(lab_.get());
  a->recorder.on_header = [](const FrameHeader&) { return absl::InvalidArgumentError("wrong"); };
  a->connection = *lab_->dialler().Dial(listener_->address(), &a->recorder, {});
  auto b = TakeAccepted();
  ASSERT_NE(b, nullptr);
  ASSERT_TRUE(b->connection->Send(TestFrame(FrameKind::kGradient, 0, 100000)).ok());
  ExpectClosed(a->recorder, absl::StatusCode::kInvalidArgument);
  ExpectClosed(b->recorder, absl::StatusCode::kUnavailable);
}

TEST_P(TransportConformance, PayloadsThatDoNotFitTheirHeaderAreDataLoss) {
  for (const int64_t missing : {0, 1, 700000}) {
    SCOPED_TRACE(missing);
    auto [a, b] = Connect();
    Frame frame = TestFrame(FrameKind::kActivation, 0, 100000);
    frame.header.payload_bytes += static_cast<uint64_t>(missing);
    frame.header.payload_crc ^= missing == 0 ? 1 : 0;
    ASSERT_TRUE(a->connection->Send(frame).ok());
    a->connection->Close();
    ExpectClosed(b->recorder, absl::StatusCode::kDataLoss);
    EXPECT_TRUE(b->recorder.frames().empty());
    ASSERT_TRUE(RunUntil([&, x = a.get()] { return x->recorder.closed(); }));
  }
}

TEST_P(TransportConformance, CloseDeliversWhatIsQueuedThenEndsBothInOrder) {
  for (const bool dialler_closes : {true, false}) {
    SCOPED_TRACE(dialler_closes);
    auto [a, b] = Connect();
    Side& closer = dialler_closes ? *a : *b;
    Side& other = dialler_closes ? *b : *a;
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(closer.connection->Send(TestFrame(FrameKind::kInput, i, 300000)).ok());
    }
    closer.connection->Close();
    EXPECT_TRUE(absl::IsUnavailable(closer.connection->Send(TestFrame(FrameKind::kInput, 20, 1))));
    ExpectIntact(other.recorder, 20);
    ExpectClosed(other.recorder, absl::StatusCode::kOk);
    ExpectClosed(closer.recorder, absl::StatusCode::kOk);
    EXPECT_TRUE(absl::IsUnavailable(other.connection->Send(TestFrame(FrameKind::kInput, 0, 1))));
    EXPECT_EQ(other.recorder.frames().size(), 20u);
    EXPECT_TRUE(RunUntil([&] { return closer.connection->queued_bytes() == 0; }));
  }
}

TEST_P(TransportConformance, ClosedAndLetGoOfItStillDelivers) {
  auto [a, b] = Connect();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(a->connection->Send(TestFrame(FrameKind::kInput, i, 300000)).ok());
  }
  a->connection->Close();
  a->connection.reset();
  EXPECT_EQ(a->recorder.closed_calls(), 1);
  ExpectIntact(b->recorder, 10);
  ExpectClosed(b->recorder, absl::StatusCode::kOk);
}

TEST_P(TransportConformance, BothMayCloseAtOnce) {
  auto [a, b] = Connect();
  a->connection->Close();
  b->connection->Close();
  ExpectClosed(a->recorder, absl::StatusCode::kOk);
  ExpectClosed(b->recorder, absl::StatusCode::kOk);
}

TEST_P(TransportConformance, NobodyAtTheAddressIsUnavailable) {
  Listen();
  const std::string address = listener_->address();
  listener_.reset();
  Side side(lab_.get());
  auto connection = lab_->dialler().Dial(address, &side.recorder, {});
  ASSERT_TRUE(connection.ok());
  side.connection = *std::move(connection);
  side.connection->Send(TestFrame(FrameKind::kInput, 0, 10)).IgnoreError();
  ExpectClosed(side.recorder, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::IsUnavailable(side.connection->Send(TestFrame(FrameKind::kInput, 1, 10))));
}

TEST_P(TransportConformance, ARefusedConnectionIsUnavailable) {
  auto listener = lab_->acceptor().Listen(kAnyPort, [](auto) { return Accepted{}; });
  ASSERT_TRUE(listener.ok());
  listener_ = *std::move(listener);
  auto a = Dial();
  ExpectClosed(a->recorder, absl::StatusCode::kUnavailable);
}

TEST_P(TransportConformance, AddressesAreChecked) {
  const auto accept = [](std::shared_ptr<Connection>) { return Accepted{}; };
  Recorder recorder(lab_.get());
  for (const char* bad : {"", "nonsense", "127.0.0.1", "127.0.0.1:", ":1", "127.0.0.1:70000",
                          "127.0.0.1:-1", "127.0.0.1:1x", "::1:5"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(lab_->acceptor().Listen(bad, accept).status())) << bad;
    EXPECT_TRUE(absl::IsInvalidArgument(lab_->dialler().Dial(bad, &recorder, {}).status())) << bad;
  }
  Listen();
  EXPECT_FALSE(absl::EndsWith(listener_->address(), ":0"));
  const absl::Status taken = lab_->acceptor().Listen(listener_->address(), accept).status();
  EXPECT_TRUE(absl::IsAlreadyExists(taken)) << taken;
  EXPECT_TRUE(absl::StrContains(taken.message(), listener_->address())) << taken;
  const std::string address = listener_->address();
  listener_.reset();
  EXPECT_TRUE(lab_->acceptor().Listen(address, accept).ok());
}

TEST_P(TransportConformance, DestroyedWhileSendingBothEndsAreToldOnce) {
  for (const bool dialler_goes : {true, false}) {
    SCOPED_TRACE(dialler_goes);
    auto [a, b] = Connect();
    Side& goes = dialler_goes ? *a : *b;
    Side& stays = dialler_goes ? *b : *a;
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(goes.connection->Send(TestFrame(FrameKind::kInput, i, 1 << 20)).ok());
      ASSERT_TRUE(stays.connection->Send(TestFrame(FrameKind::kInput, i, 1 << 20)).ok());
    }
    ASSERT_TRUE(RunUntil([&] { return !stays.recorder.frames().empty(); }));
    goes.connection.reset();
    EXPECT_EQ(goes.recorder.closed_calls(), 1);
    ASSERT_TRUE(RunUntil([&] { return goes.recorder.closed() && stays.recorder.closed(); }));
    EXPECT_TRUE(goes.recorder.status().ok()) << goes.recorder.status();
    EXPECT_EQ(goes.recorder.violations(), 0);
    EXPECT_EQ(stays.recorder.violations(), 0);
    for (const Frame& frame : stays.recorder.frames()) EXPECT_EQ(WhatIsWrongWith(frame), "");
  }
}

TEST_P(TransportConformance, DestroyedWithinItsOwnCallback) {
  auto [a, b] = Connect();
  a->recorder.on_frame = [side = a.get()](const Frame&) { side->connection.reset(); };
  // The later ones may find the connection gone already.
  for (int i = 0; i < 5; ++i) {
    const absl::Status sent = b->connection->Send(TestFrame(FrameKind::kGradient, i, 1000));
    EXPECT_TRUE(sent.ok() || (i > 0 && absl::IsUnavailable(sent))) << sent;
  }
  ExpectClosed(a->recorder, absl::StatusCode::kOk);
  ExpectClosed(b->recorder, absl::StatusCode::kUnavailable);
  // Written down when the callback is over: the other end may have heard of the end before.
  EXPECT_TRUE(RunUntil([&] { return !a->recorder.frames().empty(); }));
  EXPECT_EQ(a->recorder.frames().size(), 1u);
}

TEST_P(TransportConformance, AListenerThatGoesClosesWhatItAccepted) {
  auto [a, b] = Connect();
  ASSERT_TRUE(a->connection->Send(TestFrame(FrameKind::kInput, 0, 10)).ok());
  ExpectIntact(b->recorder, 1);
  listener_.reset();
  EXPECT_EQ(b->recorder.closed_calls(), 1);
  ExpectClosed(a->recorder, absl::StatusCode::kUnavailable);
}

TEST_P(TransportConformance, ATransportThatGoesBreaksItsConnections) {
  auto [a, b] = Connect();
  ASSERT_TRUE(a->connection->Send(TestFrame(FrameKind::kInput, 0, 10)).ok());
  ExpectIntact(b->recorder, 1);
  lab_->DestroyTransports();
  EXPECT_EQ(a->recorder.closed_calls(), 1);
  ExpectClosed(b->recorder, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::IsUnavailable(a->connection->Send(TestFrame(FrameKind::kInput, 1, 10))));
}

TEST_P(TransportConformance, ManyConnectionsDoNotMix) {
  constexpr int kConnections = 24;
  constexpr int kFrames = 20;
  std::vector<std::unique_ptr<Side>> dialled, accepted;
  for (int c = 0; c < kConnections; ++c) {
    auto [a, b] = Connect();
    ASSERT_NE(b, nullptr);
    dialled.push_back(std::move(a));
    accepted.push_back(std::move(b));
  }
  for (int i = 0; i < kFrames; ++i) {
    for (int c = 0; c < kConnections; ++c) {
      Frame frame = TestFrame(FrameKind::kInput, i, static_cast<size_t>(1000 * c), c);
      ASSERT_TRUE(dialled[c]->connection->Send(frame).ok());
      ASSERT_TRUE(accepted[c]->connection->Send(frame).ok());
    }
  }
  for (int c = 0; c < kConnections; ++c) {
    // Which accepted side belongs to which dialled one, the frames must say consistently.
    ExpectIntact(dialled[c]->recorder, kFrames);
    ExpectIntact(accepted[c]->recorder, kFrames);
    std::set<int> generations;
    for (const Frame& frame : accepted[c]->recorder.frames()) {
      generations.insert(frame.header.generation.value());
    }
    EXPECT_EQ(generations.size(), 1u);
  }
}

TEST_P(TransportConformance, ShapingDelaysAndChangesNothing) {
  LinkShaping shaping;
  shaping.megabits_per_second = 80;
  shaping.delay_ms = 5;
  constexpr int kFrames = 8;
  constexpr size_t kBytes = 50000;
  auto [a, b] = Connect(shaping, shaping);
  const int64_t start_ns = lab_->NowNanos();
  for (int i = 0; i < kFrames; ++i) {
    ASSERT_TRUE(a->connection->Send(TestFrame(FrameKind::kInput, i, kBytes)).ok());
    ASSERT_TRUE(b->connection->Send(TestFrame(FrameKind::kGradient, i, kBytes)).ok());
  }
  EXPECT_GT(a->connection->queued_bytes(), 0);
  EXPECT_GT(b->connection->queued_bytes(), 0);
  ExpectIntact(b->recorder, kFrames);
  ExpectIntact(a->recorder, kFrames);
  // Never faster than the link; how much slower is the machine's business (tests/bench).
  const double ideal_ns = kFrames * (kBytes + kFrameHeaderBytes) * 100.0 + 5e6;
  EXPECT_GE(static_cast<double>(lab_->NowNanos() - start_ns), ideal_ns);
  EXPECT_TRUE(RunUntil([&, x = a->connection.get()] { return x->queued_bytes() == 0; }));
  a->connection->Close();
  ExpectClosed(b->recorder, absl::StatusCode::kOk);
}

INSTANTIATE_TEST_SUITE_P(Transports, TransportConformance, ::testing::ValuesIn(AllTransports()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace runnel::transport_conformance_test
