#pragma once

// The check-points of a run: what is on its way to the folder, and what comes of failures. One
// thread, but on_end is called on the writer's.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "central/records/checkpoint.h"
#include "central/records/journal_thread.h"
#include "central/records/run_claim.h"
#include "central/run/checkpoints/checkpoint_failures.h"
#include "central/run/checkpoints/checkpoint_writer.h"

namespace runnel {

class RunCheckpoints {
 public:
  // Check-points go to `folder`, each behind what the journal was given before. claim, journal:
  // borrowed; null: nobody else can have the run, it keeps no journal. on_end: CheckpointWriter's;
  // its owner calls Ended on its own thread.
  void Begin(std::string folder, const RunClaim* claim, JournalThread* journal,
             CheckpointWriter::OnEnd on_end);
  // After Begin.
  void Add(Checkpoint checkpoint, bool is_last);
  // CheckpointFailures::Add.
  absl::Status Ended(const CheckpointEnd& end, std::string& warning);

  // Begin was called.
  bool is_on() const { return writer_ != nullptr; }
  // The end of each one has been told.
  bool all_ended() const { return under_way_ == 0; }

 private:
  int64_t under_way_ = 0;
  CheckpointFailures failures_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace runnel
