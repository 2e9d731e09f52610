#include "worker/measure/clock_probe.h"

#include <cstdint>

#include "proto/base/host/processor_time.h"

namespace runnel {
namespace {

constexpr int kSteps = 300'000;

}  // namespace

double MeasureClockStepNs() {
  const int64_t begin_ns = ThreadProcessorNs();
  auto value = static_cast<uint64_t>(begin_ns);
  for (int i = 0; i < kSteps; ++i)
    value = value * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
  const auto passed_ns = static_cast<double>(ThreadProcessorNs() - begin_ns);
  // The compiler must believe that the value is needed.
  volatile uint64_t sink = value;
  static_cast<void>(sink);
  return passed_ns / kSteps;
}

}  // namespace runnel
