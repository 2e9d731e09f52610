#pragma once

// What loopback and simulated share: connections between parts of one process, over a scheduler
// that says when things happen. Payloads are passed by reference.

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "proto/base/random.h"
#include "proto/transport/link/observer_gate.h"
#include "proto/transport/link/pacer.h"
#include "proto/transport/link/scheduler.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Faults of the network itself, drawn from a seed. All zero: none.
struct InProcessFaults {
  uint64_t seed = 0;
  // Uniform, for each frame and direction, on top of shaping; order within a direction is kept.
  int64_t min_delay_ns = 0;
  int64_t max_delay_ns = 0;
  // A copy of a state takes up to so much longer, and other frames overtake it, as they do where it
  // is sent in pieces between them.
  int64_t max_replica_ns = 0;
  // A connection breaks after a time drawn from this range; max 0: never.
  int64_t min_life_ns = 0;
  int64_t max_life_ns = 0;
  // One frame in so many arrives with a wrong byte; 0: none.
  uint32_t damage_one_in = 0;
};

// Between which nodes something passes now. What arrives where nothing passes is held back, in
// order, until Open; the network's owner tells its links then. Thread-safe.
class InProcessPaths {
 public:
  void Close(const std::string& node) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++closed_[node];
  }
  void Open(const std::string& node) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--closed_[node] <= 0) closed_.erase(node);
  }
  bool passes(const std::string& a, const std::string& b) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool is_closed = closed_.contains(a) || closed_.contains(b) ||
                           (!closed_links_.empty() && closed_links_.contains(std::minmax(a, b)));
    return !is_closed;
  }
  // Between these two nodes alone; or again. Calls nest.
  void CloseLink(const std::string& a, const std::string& b) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++closed_links_[std::minmax(a, b)];
  }
  void OpenLink(const std::string& a, const std::string& b) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = closed_links_.find(std::minmax(a, b));
    if (--found->second == 0) closed_links_.erase(found);
  }
  bool IsLinkClosed(const std::string& a, const std::string& b) const {
    std::lock_guard<std::mutex> lock(mutex_);
    return closed_links_.contains(std::minmax(a, b));
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int> closed_;                                // how often; guarded by mutex_
  std::map<std::pair<std::string, std::string>, int> closed_links_;  // as closed_
};

// A connection with both its ends: 0 dialled, 1 accepted. Thread-safe.
class InProcessLink final : public std::enable_shared_from_this<InProcessLink> {
 public:
  // `index` numbers the connections of a network: with the seed it fixes the draws.
  InProcessLink(std::shared_ptr<Scheduler> scheduler, const InProcessFaults& faults,
                std::shared_ptr<const InProcessPaths> paths, uint64_t index,
                std::array<std::string, 2> nodes);

  // Gives an end its observer; what was sent from it before leaves now. False: the end has been let
  // go of, its observer is never called.
  bool Attach(int end, ConnectionObserver* observer, const LinkShaping& shaping);
  // Nothing of end 0 arrives before this time; from then on the connection's life counts.
  void EstablishAt(int64_t time_ns);

  absl::Status Send(int end, const Frame& frame);
  void Close(int end);
  int64_t queued_bytes(int end) const;

  // The owner of an end lets go of it; after Close() what is queued still leaves.
  void Release(int end);
  // Breaks the connection for the good of `end`: its observer is gone on return.
  void Abort(int end);
  // Breaks the connection; end `first` hears of it now, the other when that news has travelled.
  void Break(int first, const absl::Status& status);
  // As Break, both ends now.
  void BreakAtOnce(const absl::Status& status);
  // Delivers what was held back, if the way is open.
  void Flush();
  // The end of this node; the dialling one if both are its.
  int EndOf(const std::string& node) const { return nodes_[0] == node ? 0 : 1; }

  bool passes() const { return paths_->passes(nodes_[0], nodes_[1]); }
  bool touches(const std::string& node) const { return nodes_[0] == node || nodes_[1] == node; }

 private:
  enum class State { kOpen, kClosing, kClosed };  // of what an end sends
  struct End {
    explicit End(CounterRandom delays) : random(delays) {}

    State state = State::kOpen;
    bool released = false;
    std::shared_ptr<ObserverGate> gate;  // null until attached
    std::vector<Frame> waiting;          // sent before attached
    Pacer pacer{LinkShaping{}};
    CounterRandom random;
    uint64_t draws = 0;
    int64_t last_arrival_ns = 0;  // of what this end sent
    int64_t last_replica_ns = 0;  // of copies of its state
    int64_t queued_bytes = 0;
    std::vector<std::function<void()>> held;  // on its way to this end
  };

  // These expect mutex_ to be held.
  void Queue(int end, const Frame& frame);
  int64_t ArrivalOf(End& sender, int64_t arrive_ns);
  int64_t ArrivalOf(End& sender, FrameKind kind, int64_t arrive_ns);
  bool Kill();
  void ScheduleClosed(int end, int64_t time_ns, absl::Status status);
  // These do not.
  // Something has come to this end: it happens now, or when the way is open.
  void Pass(int to, std::function<void()> what);
  void Arrive(int to, Frame frame);
  void EndOfStream(int to);
  void Fail(int to, const absl::Status& status);
  void Tell(int end, const absl::Status& status);

  const std::shared_ptr<Scheduler> scheduler_;
  const InProcessFaults faults_;
  const std::shared_ptr<const InProcessPaths> paths_;
  const uint64_t index_;
  const std::array<std::string, 2> nodes_;
  mutable std::mutex mutex_;
  bool dead_ = false;        // guarded by mutex_: broken, nothing arrives any more
  std::array<End, 2> ends_;  // guarded by mutex_
};

// One end, as its owner holds it.
class InProcessConnection final : public Connection {
 public:
  InProcessConnection(std::shared_ptr<InProcessLink> link, int end)
      : link_(std::move(link)), end_(end) {}
  ~InProcessConnection() override { link_->Release(end_); }

  absl::Status Send(const Frame& frame) override { return link_->Send(end_, frame); }
  void Close() override { link_->Close(end_); }
  int64_t queued_bytes() const override { return link_->queued_bytes(end_); }

 private:
  const std::shared_ptr<InProcessLink> link_;
  const int end_;
};

// Who accepts at an address. Thread-safe.
class InProcessAcceptor {
 public:
  InProcessAcceptor(std::string node, AcceptFn accept)
      : node_(std::move(node)), accept_(std::move(accept)) {}

  // Offers end 1 of a link. False: nobody took it.
  bool Offer(const std::shared_ptr<InProcessLink>& link);
  // On return no offer is running or will be taken, and all that were accepted are closed.
  void Shutdown();

  const std::string& node() const { return node_; }

 private:
  const std::string node_;
  const AcceptFn accept_;
  std::mutex mutex_;
  std::condition_variable left_;
  bool open_ = true;                                    // guarded by mutex_
  bool offering_ = false;                               // guarded by mutex_
  std::thread::id offering_thread_;                     // guarded by mutex_
  std::vector<std::weak_ptr<InProcessLink>> accepted_;  // guarded by mutex_
};

// The addresses and connections of one process or simulation. Thread-safe.
class InProcessNetwork final : public std::enable_shared_from_this<InProcessNetwork> {
 public:
  InProcessNetwork(std::shared_ptr<Scheduler> scheduler, const InProcessFaults& faults)
      : scheduler_(std::move(scheduler)), faults_(faults) {}

  // As the methods of Transport, for the part of the process that is called `node`.
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& node,
                                                   const std::string& address, AcceptFn accept);
  absl::StatusOr<std::shared_ptr<Connection>> Dial(const std::string& node,
                                                   const std::string& address,
                                                   ConnectionObserver* observer,
                                                   const LinkShaping& shaping);
  void StopListening(const std::string& address);

  // Breaks the connections that stand, of this node or, without a name, of all; both ends hear of
  // it before this returns.
  void BreakAll(const absl::Status& status);
  void BreakNode(const std::string& node, const absl::Status& status);
  // This node is gone: it hears nothing, its peers hear of it when the news has travelled.
  void LoseNode(const std::string& node, const absl::Status& status);
  // While a node is unreachable, dialling from it and to it fails.
  void SetReachable(const std::string& node, bool reachable);
  // Nothing passes to this node and from it; or again.
  void SetCut(const std::string& node, bool cut);
  void SetLinkCut(const std::string& a, const std::string& b, bool cut);
  // As BreakNode, of the connections of these two nodes with each other.
  void BreakBetween(const std::string& a, const std::string& b, const absl::Status& status);
  const InProcessPaths& paths() const { return *paths_; }
  bool listens(const std::string& address) {
    std::lock_guard<std::mutex> lock(mutex_);
    return acceptors_.contains(address);
  }

 private:
  void Establish(const std::string& address, const std::shared_ptr<InProcessLink>& link);
  std::vector<std::shared_ptr<InProcessLink>> LiveLinks();

  const std::shared_ptr<Scheduler> scheduler_;
  const InProcessFaults faults_;
  const std::shared_ptr<InProcessPaths> paths_ = std::make_shared<InProcessPaths>();
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<InProcessAcceptor>> acceptors_;  // guarded by mutex_
  std::map<std::string, bool> unreachable_;                              // guarded by mutex_
  std::vector<std::weak_ptr<InProcessLink>> links_;                      // guarded by mutex_
  uint64_t next_link_ = 0;                                               // guarded by mutex_
  int next_port_ = 20001;                                                // guarded by mutex_
};

}  // namespace runnel
