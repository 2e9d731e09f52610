#include "proto/process/signal_watch.h"

#include <utility>

namespace runnel {

SignalWatch::SignalWatch() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

void SignalWatch::Begin(SignalFn on_signal) {
  thread_ = std::thread([this, on_signal = std::move(on_signal)] { Watch(on_signal); });
}

void SignalWatch::End() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  // Wakes the thread, which then sees that it is done.
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void SignalWatch::Watch(const SignalFn& on_signal) {
  int caught = 0;
  for (int signal = 0; sigwait(&signals_, &signal) == 0;) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (done_) return;
    on_signal(++caught, signal);
  }
}

}  // namespace runnel
