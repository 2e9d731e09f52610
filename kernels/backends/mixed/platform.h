#pragma once

// The common part of all programs of a device's processors.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backends/backend.h"
#include "kernels/backends/mixed/home_memory.h"
#include "kernels/backends/mixed/lanes.h"

namespace runnel {

// Traffic between the host and the other processors. Any thread.
struct Traffic {
  std::atomic<int64_t> bytes_to_processors = 0;
  std::atomic<int64_t> bytes_from_processors = 0;
  std::atomic<int64_t> segments = 0;  // segments that they ran
};

// Processors by number, the host first.
struct Platform {
  explicit Platform(std::vector<std::unique_ptr<Backend>> all);

  Backend& processor(int number) const { return *processors[static_cast<size_t>(number)]; }

  const std::vector<std::unique_ptr<Backend>> processors;
  const std::vector<BackendTraits> traits;  // when they were made
  const std::vector<bool> keeps_values;     // BackendTraits::keeps_values
  HomeVersions versions;
  Traffic traffic;
  Lanes lanes;  // last: ends before what its tasks use
};

}  // namespace runnel
