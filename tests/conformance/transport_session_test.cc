// Sessions over every transport: whatever happens to the connections, every frame is delivered once
// and in order, and in the end nothing waits for an acknowledgement.

#include <cstdio>
#include <map>
#include <utility>

#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "proto/transport/link/link_session.h"
#include "tests/conformance/transport_harness.h"

namespace runnel::transport_session_test {
namespace {

constexpr int kFrames = 150;  // of each kind

// Draws in sequence from one stream; on the lab's loop.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed, RandomPurpose::kTest, 0, 0) {}
  uint32_t Below(uint32_t bound) { return random_.Below(next_++, bound); }

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

// One end of a link: a session whose connections come and go.
class End {
 public:
  using NewsFn = std::function<void()>;

  End(TransportLab* lab, std::string name, Draws* draws, NewsFn lost)
      : lab_(lab), name_(std::move(name)), draws_(draws), lost_(std::move(lost)) {}

  LinkSession& session() { return session_; }
  int64_t delivered() const { return delivered_; }
  const std::map<FrameKind, int64_t>& next() const { return next_; }

  // A connection's observer. It is kept to the end: its connection goes first.
  class Line final : public ConnectionObserver {
   public:
    explicit Line(End* end) : end_(end) {}
    absl::Status OnHeader(const FrameHeader&) override { return absl::OkStatus(); }
    void OnFrame(Frame frame) override {
      end_->lab_->Post([this, frame = std::move(frame)] { end_->Arrived(this, frame); });
    }
    void OnClosed(const absl::Status&) override {
      end_->lab_->Post([this] { end_->Closed(this); });
    }

   private:
    End* const end_;
  };

  // Any thread.
  Line* NewLine() {
    std::lock_guard<std::mutex> lock(mutex_);
    lines_.push_back(std::make_unique<Line>(this));
    return lines_.back().get();
  }

  void Connected(Line* line, std::shared_ptr<Connection> connection) {
    current_ = line;
    connection_ = connection;
    session_.Connected(std::move(connection));
  }
  void Destroy() {
    current_ = nullptr;
    connection_.reset();
    session_.Disconnected();
  }
  void Close() {
    if (connection_ != nullptr) connection_->Close();
  }
  void AcknowledgeAll() {
    for (const auto& [kind, next] : next_) {
      session_.Acknowledge(kind, Generation(0), Sequence(next - 1));
    }
  }

 private:
  void Arrived(Line* line, const Frame& frame) {
    // Of a connection that has been replaced: it comes again.
    if (line != current_) return;
    const absl::Status status = session_.Received(frame);
    EXPECT_TRUE(status.ok()) << name_ << ": " << status;
  }
  void Closed(Line* line) {
    if (line != current_) return;
    Destroy();
    lost_();
  }
  void Deliver(const Frame& frame) {
    ++delivered_;
    EXPECT_EQ(frame.header.sequence, Sequence(next_[frame.header.kind]++)) << name_;
    EXPECT_EQ(WhatIsWrongWith(frame), "") << name_;
    // The owner is now and then late with its acknowledgements.
    if (draws_->Below(3) == 0) {
      session_.Acknowledge(frame.header.kind, Generation(0), frame.header.sequence);
    }
  }

  TransportLab* const lab_;
  const std::string name_;
  Draws* const draws_;
  const NewsFn lost_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Line>> lines_;  // guarded by mutex_
  Line* current_ = nullptr;
  std::shared_ptr<Connection> connection_;
  std::map<FrameKind, int64_t> next_;
  int64_t delivered_ = 0;
  LinkSession session_{[this](Frame frame) { Deliver(frame); }};
};

class SessionConformance : public ::testing::TestWithParam<TransportRow> {};

// Sends, loses connections and comes to an end as the draws have it.
class Chaos {
 public:
  Chaos(TransportLab* lab, uint64_t seed)
      : lab_(lab),
        draws_(seed),
        down_(lab, "down", &draws_, [this] { Dial(); }),
        up_(lab, "up", &draws_, [] {}) {
    auto listener = lab_->acceptor().Listen("127.0.0.1:0", [this](auto connection) {
      End::Line* const line = up_.NewLine();
      lab_->Post([this, line, connection] { up_.Connected(line, connection); });
      return Accepted{line, {}};
    });
    EXPECT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
  }

  void Dial() {
    End::Line* const line = down_.NewLine();
    auto connection = lab_->dialler().Dial(listener_->address(), line, {});
    ASSERT_TRUE(connection.ok());
    down_.Connected(line, *std::move(connection));
  }

  void SendSome() {
    for (uint32_t i = 0; i <= draws_.Below(3) && sent_ < kFrames; ++i, ++sent_) {
      const size_t bytes = draws_.Below(4) == 0 ? 700000 : draws_.Below(5000);
      down_.session().Send(TestFrame(FrameKind::kActivation, sent_, bytes));
      down_.session().Send(TestFrame(FrameKind::kLabels, sent_, draws_.Below(300)));
      up_.session().Send(TestFrame(FrameKind::kGradient, sent_, bytes / 2));
    }
  }

  // Loses the connection in one of the ways in which that can happen.
  void LoseConnection() {
    ++losses_;
    switch (draws_.Below(4)) {
      case 0:
        down_.Destroy();
        return Dial();
      case 1:
        return up_.Destroy();
      case 2:
        return down_.Close();
      default:
        return up_.Close();
    }
  }

  // After a task of the loop.
  void Continue() {
    const int64_t delivered = down_.delivered() + up_.delivered();
    if (delivered >= next_loss_ && losses_ < kLosses) {
      next_loss_ = delivered + 1 + draws_.Below(3 * kFrames / kLosses * 2);
      LoseConnection();
    }
    const bool idle = delivered == 3 * sent_;
    if (sent_ < kFrames && (idle || draws_.Below(4) == 0)) SendSome();
  }

  bool AllDelivered() {
    Continue();
    return down_.delivered() == kFrames && up_.delivered() == 2 * kFrames;
  }

  // But for what may wait for a data frame: if neither end had a connection to lose any more, none
  // told it again.
  bool NothingElseUnacknowledged() {
    const auto waiting = [this](FrameKind kind) {
      return down_.session().unacknowledged(kind) + up_.session().unacknowledged(kind);
    };
    return waiting(FrameKind::kLabels) == 0 &&
           waiting(FrameKind::kActivation) < LinkSession::kMostOwed &&
           waiting(FrameKind::kGradient) < LinkSession::kMostOwed;
  }

  End& down() { return down_; }
  End& up() { return up_; }
  int losses() const { return losses_; }

 private:
  static constexpr int kLosses = 12;
  TransportLab* const lab_;
  Draws draws_;
  End down_;  // dials
  End up_;    // accepts
  std::unique_ptr<Listener> listener_;
  int64_t sent_ = 0;
  int64_t next_loss_ = 5;
  int losses_ = 0;
};

TEST_P(SessionConformance, EveryFrameOnceInOrderWhateverConnectionsDo) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::printf("seed %d\n", static_cast<int>(seed));
    const std::unique_ptr<TransportLab> lab = GetParam().make();
    Chaos run(lab.get(), seed);
    run.Dial();
    run.SendSome();
    ASSERT_TRUE(lab->RunUntil([&] { return run.AllDelivered(); }))
        << "seed " << seed << ": " << run.down().delivered() << " and " << run.up().delivered();
    run.down().AcknowledgeAll();
    run.up().AcknowledgeAll();
    // A connection that is lost now must not keep the acknowledgements.
    run.LoseConnection();
    ASSERT_TRUE(lab->RunUntil([&] { return run.NothingElseUnacknowledged(); })) << "seed " << seed;
    EXPECT_GE(run.losses(), 3);
    EXPECT_EQ(run.down().session().counters().frames_sent, 2 * kFrames);
    EXPECT_EQ(run.up().session().counters().frames_received, 2 * kFrames);
    EXPECT_EQ(run.up().session().counters().bytes_received,
              run.down().session().counters().bytes_sent);
    EXPECT_EQ(run.down().session().counters().bytes_received,
              run.up().session().counters().bytes_sent);
    run.down().Destroy();
    run.up().Destroy();
    lab->DestroyTransports();
  }
}

// Also a network that loses connections on its own.
std::vector<TransportRow> Rows() {
  std::vector<TransportRow> rows = AllTransports();
  InProcessFaults faults;
  faults.max_delay_ns = 3'000'000;
  faults.min_life_ns = 4'000'000;
  faults.max_life_ns = 40'000'000;
  rows.push_back({"simulated_losses", [faults, seed = 0]() mutable {
                    faults.seed = static_cast<uint64_t>(++seed);
                    return MakeSimulatedLab(faults);
                  }});
  return rows;
}

INSTANTIATE_TEST_SUITE_P(Transports, SessionConformance, ::testing::ValuesIn(Rows()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace runnel::transport_session_test
