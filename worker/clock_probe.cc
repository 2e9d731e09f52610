#include "worker/clock_probe.h"

#include <cstdint>
#include <ctime>

namespace runnel {
namespace {

constexpr int kSteps = 300'000;

}  // namespace

double ThreadProcessorNs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

double MeasureClockStepNs() {
  const double begin_ns = ThreadProcessorNs();
  auto value = static_cast<uint64_t>(begin_ns);
  for (int i = 0; i < kSteps; ++i)
    value = value * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
  const double passed_ns = ThreadProcessorNs() - begin_ns;
  // The compiler must believe that the value is needed.
  volatile uint64_t sink = value;
  static_cast<void>(sink);
  return passed_ns / kSteps;
}

}  // namespace runnel
