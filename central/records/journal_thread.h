#pragma once

// Writes a run's journal on a thread of its own: a slow disk holds back neither messages of workers
// nor the feed of samples. Records are written in the order in which they came.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "central/records/journal.h"

namespace runnel {

class JournalThread {
 public:
  // journal: borrowed, and nobody else's while this lives, but between a Flush and the next Append.
  // on_error: called once, on the thread that writes, for the first record that could not be
  // written; what comes after it is dropped.
  JournalThread(JournalWriter* journal, std::function<void(const absl::Status&)> on_error);
  // Writes what waits, then ends.
  ~JournalThread();
  JournalThread(const JournalThread&) = delete;

  // Any thread.
  void Append(JournalRecord record);
  // Waits until everything that was appended before is written. The first error there was. Any
  // thread but that of on_error.
  absl::Status Flush();

 private:
  void Run();

  JournalWriter* const journal_;
  const std::function<void(const absl::Status&)> on_error_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::condition_variable written_;
  std::deque<JournalRecord> waiting_;  // the first one is being written
  absl::Status error_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace runnel
