#pragma once

// Knocks at TCP ports: connects and closes, without a word. A kernel answers for a process that is
// stopped, and refuses for one that is gone; so a knock tells these apart from a way that is cut.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/port_answer.h"

namespace runnel {

class PortProbe {
 public:
  PortProbe();
  // What is under way is given up; nothing is called afterwards.
  ~PortProbe();
  PortProbe(const PortProbe&) = delete;
  PortProbe& operator=(const PortProbe&) = delete;

  // Calls `done` once, on a thread of its own, within about timeout_ms. host: an address or a name.
  // What is no host, or cannot be dialled from here, does not answer. Any thread.
  void Ask(std::string host, int port, int64_t timeout_ms, std::function<void(PortAnswer)> done);

 private:
  struct Question {
    std::string host;
    int port = 0;
    int64_t deadline_ns = 0;
    std::function<void(PortAnswer)> done;
    int socket = -1;  // of the thread
  };

  void Run();
  // Of questions whose connections may have come about.
  static void Settle(std::vector<Question>& asked);

  std::mutex mutex_;
  std::vector<Question> new_;  // guarded by mutex_
  bool stopped_ = false;       // guarded by mutex_
  int wake_ = -1;              // an eventfd
  std::thread thread_;         // last: it runs while all of the above lives
};

}  // namespace runnel
