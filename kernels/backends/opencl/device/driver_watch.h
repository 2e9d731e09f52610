#pragma once

// Watches calls that wait for the device: a driver that hangs never returns from them, and nothing
// can end such a call.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace runnel::opencl {

struct DriverWatchOptions {
  std::chrono::milliseconds patience = std::chrono::seconds(30);  // then one line
  std::chrono::milliseconds stall = std::chrono::seconds(150);    // then the end; 0: never
  // Gets the line; the default writes it to stderr.
  std::function<void(const std::string& line)> say;
  // Ends the process, which is lost to its peers then; the default has exit code kDriverHangs. If it
  // returns, the call goes on being waited for.
  std::function<void()> end;
  // Time counts by ticks, each for two at most: while the process is stopped, or its host sleeps, no driver is waited for.
  std::chrono::milliseconds tick = std::chrono::seconds(1);
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

// EX_UNAVAILABLE of sysexits.h.
inline constexpr int kDriverHangs = 69;

// One thread calls; a thread of the watch's own waits.
class DriverWatch {
 public:
  DriverWatch(std::string device, DriverWatchOptions options);
  ~DriverWatch();

  // Called by the watch's thread before it ends the process; null: nothing is.
  void BeforeEnd(std::function<void()> note);

  // Watches the call `what`, which outlives it, for as long as the value lives.
  class Call {
   public:
    Call(DriverWatch& watch, const char* what) : watch_(watch) { watch_.Set(what); }
    ~Call() { watch_.Set(nullptr); }
    Call(const Call&) = delete;

   private:
    DriverWatch& watch_;
  };

 private:
  void Set(const char* what);
  void Loop();
  // Waits until the call that runs is done. True: it took longer.
  bool Outlasts(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time);
  std::string Line(const char* what, std::chrono::milliseconds after, const char* then) const;

  const std::string device_;
  DriverWatchOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> before_end_;
  const char* what_ = nullptr;  // the call that runs
  uint64_t number_ = 0;         // of the last one that began
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace runnel::opencl
