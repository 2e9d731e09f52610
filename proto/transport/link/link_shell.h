#pragma once

// A link on an event loop: connections of a transport come and go underneath, a LinkSession on top
// keeps its frames. One end dials and dials again; the other is attached when the peer has said
// hello.

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/transport/link/bandwidth.h"
#include "proto/transport/link/event_loop.h"
#include "proto/transport/link/link_session.h"
#include "proto/transport/link/link_target.h"
#include "proto/transport/link/redial_policy.h"
#include "proto/transport/link/round_trip.h"
#include "proto/transport/link/silence_watch.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Largest payload that is believed, by kind and micro-batch size; set by the loop, read by
// transport threads.
class FrameLimits {
 public:
  // Replaces all limits. Hello, refusal, ack and probe frames are always allowed (a hello
  // or a refusal up to 1 KiB, a probe up to BandwidthProbe::kMaxBytes).
  void Set(std::map<std::pair<FrameKind, uint32_t>, uint64_t> payload_bytes);
  // InvalidArgument names kind, size and limit.
  absl::Status Check(const FrameHeader& header) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<FrameKind, uint32_t>, uint64_t> payload_bytes_;  // guarded by mutex_
};

// Passes one connection's events on to a loop. Strong references live on the loop's thread only
// (and with the acceptor), so that a connection is never destroyed by one of its own callbacks.
class LoopConnection final : public ConnectionObserver,
                             public std::enable_shared_from_this<LoopConnection> {
 public:
  using FrameFn = std::function<void(Frame frame)>;
  using ClosedFn = std::function<void(const absl::Status& status)>;

  // `loop` and `limits` outlive it. admitted: false for a peer that has not shown yet that it may
  // be here. Of such a stranger one hello is taken and nothing else.
  LoopConnection(EventLoop* loop, const FrameLimits* limits, bool admitted = true)
      : loop_(loop), limits_(limits), admitted_(admitted) {}
  ~LoopConnection() override { connection_.reset(); }

  // Called on the loop's thread: sets the receivers of frames and of the connection's end.
  void Bind(FrameFn on_frame, ClosedFn on_closed);
  void Unbind();
  void SetConnection(std::shared_ptr<Connection> connection) {
    connection_ = std::move(connection);
  }
  const std::shared_ptr<Connection>& connection() const { return connection_; }
  // Called on the loop's thread: accepts from now on the frames that `limits` allow.
  void Admit() { admitted_ = true; }
  bool admitted() const { return admitted_; }
  // A frame's header has come and the rest of it has not: bytes are on their way.
  bool mid_frame() const { return mid_frame_; }
  // Called on the loop's thread: cuts the peer off at once, without a message.
  void Abort();
  // Called on the loop's thread: closes; later frames and the end are dropped.
  void Close();
  // Closes as Close does, and tells the peer the reason: "has no stage yet".
  void Refuse(absl::string_view reason);
  // Called on the loop's thread once the connection has ended, whoever is bound.
  void OnGone(std::function<void()> gone) { gone_ = std::move(gone); }

  absl::Status OnHeader(const FrameHeader& header) override;
  void OnFrame(Frame frame) override;
  void OnClosed(const absl::Status& status) override;

 private:
  EventLoop* loop_;
  const FrameLimits* limits_;
  std::shared_ptr<Connection> connection_;
  FrameFn on_frame_;
  ClosedFn on_closed_;
  std::function<void()> gone_;
  std::atomic<bool> admitted_;
  std::atomic<bool> mid_frame_{false};
  bool has_hello_ = false;  // only read by the thread that calls OnHeader
};

// The first message of a dialling end, and the answer of an accepting end.
struct LinkHello {
  std::string token;  // dialling: LinkTarget::token; accepting: LinkTarget::greeting
  std::string role;   // "link": from the stage before; "feed": from central
};
Frame MakeHello(const LinkHello& hello);
// The frame by which an accepting end refuses a connection.
Frame MakeRefusal(absl::string_view reason);
absl::StatusOr<LinkHello> ParseHello(const Frame& frame);
// Takes the same time wherever they differ.
bool EqualTokens(absl::string_view a, absl::string_view b);

// Whom an accepting end takes.
struct LinkExpectation {
  std::string token;          // empty: nobody yet
  std::string upstream_peer;  // the only peer that may come as "link", as Connection::peer names it
  std::string feed_peer;      // the only peer that may come as "feed"
};

// Accepts data connections and hands each on when it has shown the stage's token and, where the
// transport knows who dials, is who may come. A stranger has kHelloPatienceNs to say hello, in at
// most 1 KiB; of more than kMostStrangers the oldest is cut off.
class LinkAcceptor {
 public:
  static constexpr int64_t kHelloPatienceNs = int64_t{5} * 1000 * 1000 * 1000;
  static constexpr size_t kMostStrangers = 16;
  // role: LinkHello::role. On the loop's thread.
  using HelloFn =
      std::function<void(const std::string& role, std::shared_ptr<LoopConnection> connection)>;

  // Why a connection was cut off, for a log; on the loop's thread.
  using RefusedFn = std::function<void(absl::string_view why)>;

  LinkAcceptor(EventLoop* loop, const FrameLimits* limits, HelloFn on_hello,
               RefusedFn on_refused = nullptr)
      : loop_(loop),
        limits_(limits),
        on_hello_(std::move(on_hello)),
        on_refused_(std::move(on_refused)) {}
  // Ends the listener and all its connections. On the loop's thread, or when the loop no longer
  // runs.
  ~LinkAcceptor();

  // Errors as Transport::Listen.
  absl::Status Listen(Transport* transport, const std::string& address);
  std::string address() const { return listener_->address(); }
  // Called on the loop's thread: sets the credentials that a peer must show, and the shaping of
  // what is sent to a neighbour.
  void Expect(LinkExpectation expectation, const LinkShaping& shaping);

 private:
  Accepted Accept(std::shared_ptr<Connection> connection);
  void Greeted(const std::weak_ptr<LoopConnection>& weak, const Frame& frame);
  void CutOff(const std::weak_ptr<LoopConnection>& stranger, absl::string_view why);
  void CutOffOldestStranger();

  EventLoop* loop_;
  const FrameLimits* limits_;
  HelloFn on_hello_;
  RefusedFn on_refused_;
  LinkExpectation expectation_;  // used on the loop's thread
  std::mutex mutex_;
  LinkShaping shaping_;                                  // guarded by mutex_
  std::deque<std::weak_ptr<LoopConnection>> strangers_;  // oldest first; guarded by mutex_
  std::map<LoopConnection*, std::shared_ptr<LoopConnection>> connections_;  // guarded by mutex_
  std::unique_ptr<Listener> listener_;
  // False once the acceptor is gone: timers check it.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

// Call all methods on the loop's thread.
class LinkShell {
 public:
  struct Options {
    Transport* transport = nullptr;  // dialling end only
    LinkTarget target;               // without an address: the peer dials us
    std::string peer = {};           // then: who that is (Connection::peer), for people
    std::string role;                // LinkHello's
    LinkShaping shaping;
    RedialLimits redial;
    // Called after each frame or acknowledgement that came in: there may be room to send.
    std::function<void()> on_received;
    // Measure what we send with probes while nothing else tells (bandwidth.h), and the round trip
    // (round_trip.h). The answers tell whether the connection is of any use: by the rhythm in which
    // things come (silence_watch.h), and by what may be in buffers on the way.
    bool probes = false;
  };
  using FailedFn = std::function<void(const absl::Status& status)>;

  // `loop` and `limits` outlive the shell.
  LinkShell(EventLoop* loop, const FrameLimits* limits, Options options,
            LinkSession::DeliverFn deliver, FailedFn failed);
  ~LinkShell();
  LinkShell(const LinkShell&) = delete;
  LinkShell& operator=(const LinkShell&) = delete;

  // Dialling end: begins to connect.
  void Start();
  // Accepting end: the peer is there (again).
  void Attach(std::shared_ptr<LoopConnection> connection);

  LinkSession& session() { return session_; }
  const LinkSession& session() const { return session_; }
  // Whether hellos were exchanged.
  bool connected() const { return session_.connected(); }
  // Handed over for sending and not left yet.
  int64_t queued_bytes() const;
  // Rate of the link towards us, by the peer's frames; 0: not measured yet.
  double received_bytes_per_second() const { return incoming_.bytes_per_second(); }
  // Round trip of the link; 0: not measured yet.
  int64_t round_trip_ns() const { return round_trip_.smallest_ns(); }

 private:
  void Dial();
  void Adopt(std::shared_ptr<LoopConnection> connection);
  // Hellos are exchanged: frames may go.
  void Connected();
  void Received(Frame frame);
  // Dialling end: what comes before the greeting.
  void AwaitGreeting(const Frame& frame);
  void Closed(const absl::Status& status);
  // The link is given up; says which one it is.
  void Fail(const absl::Status& status);
  absl::Status ReceivedProbe(const Frame& frame);
  void ProbeTick();
  // Gives up a connection on which nothing comes any more; another one is made.
  void LookForSilence(int64_t now_ns);
  void SendBeside(Frame frame);

  EventLoop* loop_;
  const FrameLimits* limits_;
  Options options_;
  FailedFn failed_;
  std::shared_ptr<LoopConnection> connection_;  // the observer: outlives what session_ holds
  LinkSession session_;
  BandwidthMeter incoming_;
  BandwidthProbe probe_;
  RoundTripMeter round_trip_;
  SilenceWatch silence_;
  int64_t large_frames_seen_ = 0;  // the session's counter at the last look
  RedialPolicy redial_;
  std::shared_ptr<bool> alive_;  // false once the shell is gone: timers check it
};

}  // namespace runnel
