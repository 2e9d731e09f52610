#include "central/run/checkpoints/run_checkpoints.h"

#include <chrono>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {

RunCheckpoints::~RunCheckpoints() {
  StopWaiting();
  writer_.reset();
}

void RunCheckpoints::StopWaiting() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stops_ = true;
  }
  stops_changed_.notify_all();
}

absl::StatusOr<std::string> RunCheckpoints::Write(
    const Checkpoint& checkpoint, const std::string& folder,
    const std::function<void(const std::string&)>& on_wait) {
  constexpr std::chrono::seconds kPause{1};
  absl::StatusOr<std::string> path = WriteCheckpoint(checkpoint, folder);
  int64_t tries = CheckpointFailures::kPatienceNs / 1'000'000'000;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!path.ok() && !CheckpointFailures::IsLasting(path.status()) &&
         checkpoint.step == last_step_ && tries-- > 0) {
    if (tries + 1 == CheckpointFailures::kPatienceNs / 1'000'000'000) {
      on_wait(
          absl::StrCat(path.status().message(),
                       ": this is the run's last check-point, it is tried again for 10 minutes"));
    }
    if (stops_changed_.wait_for(lock, kPause, [this] { return stops_; })) break;
    lock.unlock();
    path = WriteCheckpoint(checkpoint, folder);
    lock.lock();
  }
  return path;
}

void RunCheckpoints::Begin(std::string folder, const RunClaim* claim, JournalThread* journal,
                           CheckpointWriter::OnEnd on_end,
                           std::function<void(const std::string&)> on_wait) {
  writer_ = std::make_unique<CheckpointWriter>(
      [this, folder = std::move(folder), claim, journal,
       on_wait = std::move(on_wait)](const Checkpoint& checkpoint) -> absl::StatusOr<std::string> {
        if (claim != nullptr) RUNNEL_RETURN_IF_ERROR(claim->CheckHeld());
        // A check-point that the journal knows nothing of could not be gone on from.
        if (journal != nullptr) RUNNEL_RETURN_IF_ERROR(journal->Flush());
        return Write(checkpoint, folder, on_wait);
      },
      std::move(on_end));
}

void RunCheckpoints::Add(Checkpoint checkpoint, bool is_last) {
  ++under_way_;
  if (is_last) {
    failures_.ExpectLast(checkpoint.step);
    const std::lock_guard<std::mutex> lock(mutex_);
    last_step_ = checkpoint.step;
  }
  writer_->Add(std::move(checkpoint));
}

absl::Status RunCheckpoints::Ended(const CheckpointEnd& end, int64_t now_ns, std::string& warning) {
  --under_way_;
  return failures_.Add(end, now_ns, warning);
}

}  // namespace runnel
