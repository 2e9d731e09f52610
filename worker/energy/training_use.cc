#include "worker/energy/training_use.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace runnel {

// "cpu user nice system idle iowait irq softirq steal ...", in ticks.
int64_t DeviceProcessorNs(const std::string& root) {
  std::ifstream file(root + "/proc/stat");
  std::string name;
  int64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
  if (!(file >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq)) return 0;
  const int64_t ticks_a_second = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  return (user + nice + system + irq + softirq) * (1'000'000'000 / ticks_a_second);
}

void TrainingUse::Resume(int64_t now_ns) {
  processor_time_.Resume();
  if (counts_ || counter_ == nullptr) return;
  counts_ = true;
  counter_->Take(now_ns);  // earlier energy belongs to nobody here
  last_process_ns_ = processor_time_.ns();
  last_device_ns_ = DeviceProcessorNs(root_);
}

void TrainingUse::Pause(int64_t now_ns) {
  if (counts_) Collect(now_ns);
  counts_ = false;
  processor_time_.Pause();
}

// Ticks are coarse: an interval in which the device's clock has not moved waits for the next one.
void TrainingUse::Collect(int64_t now_ns) {
  const int64_t device_ns = DeviceProcessorNs(root_);
  const int64_t passed_ns = device_ns - last_device_ns_;
  if (last_device_ns_ > 0 && passed_ns <= 0) return;
  const int64_t process_ns = processor_time_.ns();
  const double share = last_device_ns_ > 0
                           ? std::min(1.0, static_cast<double>(process_ns - last_process_ns_) /
                                               static_cast<double>(passed_ns))
                           : 1.0;
  last_process_ns_ = process_ns;
  last_device_ns_ = device_ns;
  const std::optional<double> joules = counter_->Take(now_ns);
  if (!joules.has_value()) is_measured_ = false;
  joules_ += joules.value_or(0) * share;
}

void TrainingUse::Fill(int64_t now_ns, Telemetry& telemetry) {
  telemetry.processor_ns = processor_time_.ns();
  if (counts_) Collect(now_ns);
  const bool is_measured = counter_ != nullptr && is_measured_;
  const auto done = static_cast<double>(std::max<int64_t>(0, telemetry.backwards - first_.value()));
  telemetry.joules = is_measured ? joules_ : model_joules_ * done;
  telemetry.energy_source = is_measured ? counter_->source() : EnergySource::kModel;
}

}  // namespace runnel
