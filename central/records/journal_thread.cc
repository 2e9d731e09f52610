#include "central/records/journal_thread.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

JournalThread::JournalThread(JournalWriter* journal, Tell tell, const Patience& patience)
    : journal_(journal), tell_(std::move(tell)), patience_(patience), thread_([this] { Run(); }) {}

JournalThread::~JournalThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void JournalThread::Append(JournalRecord record) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.ok()) return;
    waiting_.push_back(std::move(record));
  }
  changed_.notify_one();
}

absl::Status JournalThread::Flush() {
  std::unique_lock<std::mutex> lock(mutex_);
  written_.wait(lock, [this] { return waiting_.empty(); });
  return error_;
}

absl::Status JournalThread::Write(std::unique_lock<std::mutex>& lock) {
  const JournalRecord& record = waiting_.front();  // stays where it is while others are appended
  absl::Status status;
  for (int tries = 0;; ++tries) {
    lock.unlock();
    status = journal_->Append(record);
    if (status.ok() && tries > 0) tell_.waits("the journal is written again, nothing is missing");
    if (!status.ok() && tries == 0 && !journal_->is_broken()) {
      tell_.waits(
          absl::StrCat(status.message(), "; the records are kept, and written when there is room"));
    }
    lock.lock();
    if (status.ok() || journal_->is_broken() || ending_ || tries >= patience_.tries) return status;
    changed_.wait_for(lock, patience_.pause, [this] { return ending_; });
  }
}

void JournalThread::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const absl::Status status = Write(lock);
    if (status.ok()) {
      waiting_.pop_front();
    } else {
      error_ = status;
      waiting_.clear();
      lock.unlock();
      tell_.failed(status);
      lock.lock();
    }
    if (waiting_.empty()) written_.notify_all();
  }
}

}  // namespace runnel
