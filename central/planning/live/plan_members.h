#pragma once

// The devices that plans may use, and those that were asked to measure before they may.

#include <set>
#include <utility>
#include <vector>

#include "central/planning/barrier_report.h"

namespace runnel {

// One thread.
class PlanMembers {
 public:
  // usable: by device, for the first plan.
  void Set(std::vector<bool> usable) { usable_ = std::move(usable); }
  const std::vector<bool>& usable() const { return usable_; }
  // As of the last call.
  size_t devices() const { return usable_.size(); }
  // devices: lost ones are those that plans may not use. Those that they may use since now.
  std::vector<int> Follow(const std::vector<DeviceFacts>& devices);
  // Devices that are there, but not among the usable ones yet, and were not asked to measure.
  std::vector<int> AskNew(const std::vector<DeviceFacts>& devices,
                          const std::vector<DeviceFacts>& usable);

  // Others than at the last plan.
  bool changed() const { return changed_; }
  void Planned() { changed_ = false; }

 private:
  std::vector<bool> usable_;  // by device
  std::set<int> asked_;
  bool changed_ = false;
};

}  // namespace runnel
