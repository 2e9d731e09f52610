#pragma once

// The check-points of a run: those on their way to the folder, and the count of failures. One
// thread, but on_end is called on the writer's.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "central/records/checkpoint.h"
#include "central/records/journal_thread.h"
#include "central/records/run_claim.h"
#include "central/run/checkpoints/checkpoint_failures.h"
#include "central/run/checkpoints/checkpoint_writer.h"

namespace runnel {

class RunCheckpoints {
 public:
  RunCheckpoints() = default;
  ~RunCheckpoints();
  RunCheckpoints(const RunCheckpoints&) = delete;
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;

  // Check-points go to `folder`, each behind what the journal was given before. claim, journal:
  // borrowed; null: nobody else can have the run, it keeps no journal. on_end: CheckpointWriter's;
  // its owner calls Ended on its own thread. The run's last one, behind which no barrier comes, is
  // tried again for as long as others would be; on_wait: a line for people, on the writer's thread.
  void Begin(std::string folder, const RunClaim* claim, JournalThread* journal,
             CheckpointWriter::OnEnd on_end, std::function<void(const std::string&)> on_wait);
  // After Begin.
  void Add(Checkpoint checkpoint, bool is_last);
  // The last one is not waited for any more: it gets the attempt that is under way, or one. Any
  // thread.
  void StopWaiting();
  // CheckpointFailures::Add.
  absl::Status Ended(const CheckpointEnd& end, int64_t now_ns, std::string& warning);

  // Begin was called.
  bool is_on() const { return writer_ != nullptr; }
  // The end of each one has been told.
  bool all_ended() const { return under_way_ == 0; }

 private:
  // On the writer's thread.
  absl::StatusOr<std::string> Write(const Checkpoint& checkpoint, const std::string& folder,
                                    const std::function<void(const std::string&)>& on_wait);

  int64_t under_way_ = 0;
  std::mutex mutex_;
  std::condition_variable stops_changed_;
  bool stops_ = false;      // guarded by mutex_
  int64_t last_step_ = -1;  // guarded by mutex_
  CheckpointFailures failures_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace runnel
