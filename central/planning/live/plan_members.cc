#include "central/planning/live/plan_members.h"

namespace runnel {

std::vector<int> PlanMembers::Follow(const std::vector<DeviceFacts>& devices) {
  usable_.resize(devices.size(), false);
  std::vector<int> came;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (usable_[i] == !devices[i].is_lost) continue;
    usable_[i] = !devices[i].is_lost;
    changed_ = true;
    if (usable_[i]) came.push_back(static_cast<int>(i));
  }
  return came;
}

std::vector<int> PlanMembers::AskNew(const std::vector<DeviceFacts>& devices,
                                     const std::vector<DeviceFacts>& usable) {
  std::vector<int> asked;
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto device = static_cast<int>(i);
    if (devices[i].is_lost) asked_.erase(device);
    const bool is_new = !devices[i].is_lost && usable[i].is_lost;
    if (is_new && asked_.insert(device).second) asked.push_back(device);
  }
  return asked;
}

}  // namespace runnel
