#include "proto/base/host/processor_time.h"

#include <ctime>

namespace runnel {
namespace {

int64_t NowNs(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

int64_t ThreadProcessorNs() { return NowNs(CLOCK_THREAD_CPUTIME_ID); }

void ProcessorTime::Resume() {
  if (!since_ns_.has_value()) since_ns_ = NowNs(CLOCK_PROCESS_CPUTIME_ID);
}

void ProcessorTime::Pause() {
  passed_ns_ = ns();
  since_ns_.reset();
}

int64_t ProcessorTime::ns() const {
  if (!since_ns_.has_value()) return passed_ns_;
  return passed_ns_ + NowNs(CLOCK_PROCESS_CPUTIME_ID) - *since_ns_;
}

}  // namespace runnel
