#pragma once

// Processor time of threads, as opposed to the wall clock.

#include <cstdint>
#include <optional>

namespace runnel {

// Processor time of the calling thread, nanoseconds since some moment.
int64_t ThreadProcessorNs();

// Times of a task, from begin to end.
struct TaskTime {
  int64_t begin_ns = 0;  // by the wall clock
  int64_t end_ns = 0;
  int64_t processor_ns = 0;  // processor time of its thread
};

// Processor time of all threads of this process, while it counts. One thread.
class ProcessorTime {
 public:
  void Resume();  // nothing if it counts
  void Pause();   // nothing if it does not
  int64_t ns() const;

 private:
  int64_t passed_ns_ = 0;
  std::optional<int64_t> since_ns_;
};

}  // namespace runnel
