#pragma once

// Processor time: what threads got, not what the wall clock says.

#include <cstdint>
#include <optional>

namespace runnel {

// Of the calling thread, nanoseconds since some moment.
int64_t ThreadProcessorNs();

// A task's, from begin to end.
struct TaskTime {
  int64_t begin_ns = 0;  // by the wall clock
  int64_t end_ns = 0;
  int64_t processor_ns = 0;  // of its thread
};

// Of all threads of this process, while it counts. One thread.
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
