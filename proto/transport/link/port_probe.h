#pragma once

// Knocks at TCP ports: connects and closes, without a word. A kernel answers for a process that is
// stopped, and refuses for one that is gone; so a knock tells these apart from a way that is cut.
//
// Names are looked up once, on a thread of their own: a name server that does not answer holds up
// only questions about names that it was not asked before.

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/port_answer.h"

namespace runnel {

class PortProbe {
 public:
  // Whom to dial; several where a name stands for several addresses.
  struct Target {
    sockaddr_storage address = {};
    socklen_t bytes = 0;
  };
  using ResolveFn = std::function<std::vector<Target>(const std::string& host)>;

  // resolve: looks a name up, on any thread; null: as the system does.
  explicit PortProbe(ResolveFn resolve = nullptr);
  // What is under way is given up; nothing is called afterwards.
  ~PortProbe();
  PortProbe(const PortProbe&) = delete;
  PortProbe& operator=(const PortProbe&) = delete;

  // Calls `done` once, on a thread of its own, within about timeout_ms. host: an address or a name,
  // all of whose addresses are tried. What is no host, or cannot be dialled from here, does not
  // answer. Any thread.
  void Ask(std::string host, int port, int64_t timeout_ms, std::function<void(PortAnswer)> done);

 private:
  struct Question {
    std::string host;
    int port = 0;
    int64_t deadline_ns = 0;
    std::function<void(PortAnswer)> done;
    // Of the thread.
    std::vector<int> sockets = {};
    bool refused = false;  // by one of the addresses
    bool begun = false;    // false: the name is being looked up

    // Closes its sockets too.
    void Answer(PortAnswer answer);
  };
  // A name that was looked up, or is.
  struct Name {
    bool is_known = false;
    std::vector<Target> targets;  // without their ports
    int64_t known_ns = 0;
  };
  // The resolver's thread shares it and may outlive the probe: a look-up cannot be given up.
  struct Names {
    ~Names();
    std::mutex mutex;
    std::map<std::string, Name> known;   // guarded by mutex
    std::deque<std::string> to_look_up;  // guarded by mutex; not empty: a thread is at it
    int wake = -1;                       // an eventfd
  };

  void Run();
  static void LookUp(const std::shared_ptr<Names>& names, const ResolveFn& resolve);
  // What is known of the host; none: it is being looked up.
  std::optional<std::vector<Target>> TargetsOf(const std::string& host, int port);
  void BeginWhatIsKnown(std::vector<Question>& asked);
  // Of questions whose connections may have come about.
  static void Settle(std::vector<Question>& asked);

  const ResolveFn resolve_;
  const std::shared_ptr<Names> names_;
  std::mutex mutex_;
  std::vector<Question> new_;  // guarded by mutex_
  bool stopped_ = false;       // guarded by mutex_
  std::thread thread_;         // last: it runs while all of the above lives
};

}  // namespace runnel
