#include "kernels/backends/opencl/device/driver_watch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel::opencl {

DriverWatch::DriverWatch(std::string device, DriverWatchOptions options)
    : device_(std::move(device)), options_(std::move(options)) {
  if (options_.say == nullptr)
    options_.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  // Not std::exit: destructors would wait for the driver too.
  if (options_.end == nullptr) options_.end = [] { std::_Exit(kDriverHangs); };
  thread_ = std::thread([this] { Loop(); });
}

DriverWatch::~DriverWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DriverWatch::BeforeEnd(std::function<void()> note) {
  const std::lock_guard lock(mutex_);
  before_end_ = std::move(note);
}

void DriverWatch::Set(const char* what) {
  {
    const std::lock_guard lock(mutex_);
    what_ = what;
    number_ += what != nullptr ? 1 : 0;
  }
  changed_.notify_all();
}

bool DriverWatch::Outlasts(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time) {
  const auto is_done = [this, number = number_] {
    return ends_ || what_ == nullptr || number_ != number;
  };
  const std::chrono::steady_clock::duration tick = std::min(options_.tick, time);
  std::chrono::steady_clock::duration waited(0);
  while (waited < time) {
    const auto before = options_.now();
    if (changed_.wait_for(lock, tick, is_done)) return false;
    waited += std::clamp(options_.now() - before, tick, 2 * tick);
  }
  return true;
}

std::string DriverWatch::Line(const char* what, std::chrono::milliseconds after,
                              const char* then) const {
  const double seconds = std::chrono::duration<double>(after).count();
  return absl::StrCat("the OpenCL driver of ", device_, " has not answered for ", seconds, " s (",
                      what, "); ", then);
}

void DriverWatch::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || what_ != nullptr; });
    if (ends_) return;
    const bool may_end = options_.stall.count() > 0;
    const auto patience = may_end ? std::min(options_.patience, options_.stall) : options_.patience;
    if (!Outlasts(lock, patience)) continue;
    options_.say(Line(what_, patience,
                      may_end ? "this worker ends if it stays so (opencl.stall_s)"
                              : "a driver that hangs ends with its process alone"));
    if (may_end && Outlasts(lock, options_.stall - patience)) {
      options_.say(
          Line(what_, options_.stall, "this worker ends; take --backend cpu, or a newer driver"));
      if (before_end_ != nullptr) before_end_();
      options_.end();
    }
    const auto is_done = [this, number = number_] {
      return ends_ || what_ == nullptr || number_ != number;
    };
    changed_.wait(lock, is_done);
  }
}

}  // namespace runnel::opencl
