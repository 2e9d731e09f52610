#pragma once

// SIGINT and SIGTERM as calls: a thread waits for them, so that no signal handler runs our code.
// For mains only.

#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace runnel {

class SignalWatch {
 public:
  // Blocks the signals. Make it before any other thread, because threads inherit blocked signals.
  SignalWatch();
  ~SignalWatch() { End(); }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Calls on_signal(1, signal) on a thread of its own at the first signal, on_signal(2, signal) at the
  // second, ...; a signal that came before is the first. Once.
  using SignalFn = std::function<void(int caught, int signal)>;
  void Begin(SignalFn on_signal);
  // After it on_signal is not called. Not on the watching thread.
  void End();

 private:
  void Watch(const SignalFn& on_signal);

  sigset_t signals_;
  std::mutex mutex_;
  bool done_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace runnel
