#pragma once

// Writes a run's journal on a thread of its own: a slow disk holds back neither messages of workers
// nor the feed of samples. Records are written in the order in which they came. A disk that takes
// none for a while (it is full) costs nothing but the time that decisions wait for it: what cannot
// be written is kept and tried again.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "central/records/journal.h"

namespace runnel {

class JournalThread {
 public:
  struct Patience {
    std::chrono::milliseconds pause{1'000};
    int tries = 600;
  };
  // Both on the thread that writes.
  struct Tell {
    // Once, when a record could not be written for as long as that is tried; what comes after it is
    // dropped.
    std::function<void(const absl::Status&)> failed;
    // A line for people: records wait, or wait no more.
    std::function<void(const std::string&)> waits = [](const std::string&) {};
  };
  // journal: borrowed, and nobody else's while this lives, but between a Flush and the next Append.
  JournalThread(JournalWriter* journal, Tell tell) : JournalThread(journal, std::move(tell), {}) {}
  JournalThread(JournalWriter* journal, Tell tell, const Patience& patience);
  // Writes what waits, if it can be written at once, then ends.
  ~JournalThread();
  JournalThread(const JournalThread&) = delete;

  // Any thread.
  void Append(JournalRecord record);
  // Waits until everything that was appended before is written. The first error there was. Any
  // thread but that of on_error.
  absl::Status Flush();

 private:
  void Run();
  // Of the first one that waits, with the lock but while it writes.
  absl::Status Write(std::unique_lock<std::mutex>& lock);

  JournalWriter* const journal_;
  const Tell tell_;
  const Patience patience_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::condition_variable written_;
  std::deque<JournalRecord> waiting_;  // the first one is being written
  absl::Status error_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace runnel
