#include "central/records/journal_thread.h"

#include <utility>

namespace runnel {

JournalThread::JournalThread(JournalWriter* journal,
                             std::function<void(const absl::Status&)> on_error)
    : journal_(journal), on_error_(std::move(on_error)), thread_([this] { Run(); }) {}

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

void JournalThread::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const JournalRecord& record = waiting_.front();  // stays where it is while others are appended
    lock.unlock();
    const absl::Status status = journal_->Append(record);
    if (!status.ok()) on_error_(status);
    lock.lock();
    if (status.ok()) {
      waiting_.pop_front();
    } else {
      error_ = status;
      waiting_.clear();
    }
    if (waiting_.empty()) written_.notify_all();
  }
}

}  // namespace runnel
