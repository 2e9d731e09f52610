#pragma once

// Processor time and energy that training uses between grants and their barriers.

#include <cstdint>
#include <string>

#include "proto/base/host/processor_time.h"
#include "proto/transport/control/control.h"
#include "worker/energy/energy_counter.h"

namespace runnel {

// Processor time that the whole device has spent since it started, by /proc/stat below `root`, in
// nanoseconds; 0: not known.
int64_t DeviceProcessorNs(const std::string& root);

// One thread. A device's energy is shared out by processor time: of what the device used while this
// process computed, the process gets its share of all processor time of these moments, so that
// several workers on one device do not count it twice.
class TrainingUse {
 public:
  // counter: may be null; outlives this, and no other TrainingUse counts at the same time.
  // model_joules: of a micro-batch, reported where there is no counter, or where it could not tell
  // at some moment. first: micro-batch with which the stage begins. root: as EnergyCounter::Find.
  TrainingUse(EnergyCounter* counter, double model_joules, Sequence first, std::string root = "")
      : counter_(counter), model_joules_(model_joules), first_(first), root_(std::move(root)) {}

  void Resume(int64_t now_ns);
  void Pause(int64_t now_ns);
  // processor_ns, joules and energy_source of `telemetry`, which says how many backwards are done.
  void Fill(int64_t now_ns, Telemetry& telemetry);

 private:
  void Collect(int64_t now_ns);

  EnergyCounter* counter_;
  const double model_joules_;
  const Sequence first_;
  const std::string root_;
  ProcessorTime processor_time_;
  bool counts_ = false;
  bool is_measured_ = true;
  double joules_ = 0;
  int64_t last_process_ns_ = 0;
  int64_t last_device_ns_ = 0;
};

}  // namespace runnel
