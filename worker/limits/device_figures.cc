#include "worker/limits/device_figures.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>

namespace runnel {
namespace {

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all_pages = 0, resident_pages = 0;
  return file >> all_pages >> resident_pages ? resident_pages * sysconf(_SC_PAGESIZE) : 0;
}

int64_t ProcessNs() {
  timespec time = {};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return 0;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

void DeviceFigures::Fill(Telemetry& telemetry) {
  const int64_t now_ns = parts_.now_ns();
  if (!has_read_ || now_ns >= read_ns_ + kEveryNs) {
    has_read_ = true;
    read_ns_ = now_ns;
    readings_ = parts_.read_device();
    if (parts_.certificate_until_s != nullptr) certificate_until_s_ = parts_.certificate_until_s();
  }
  // Zero stands for "not known".
  telemetry.celsius = std::max(0.0, readings_.celsius.value_or(0));
  telemetry.battery_charge = std::clamp(readings_.battery_percent.value_or(0) / 100, 0.0, 1.0);
  telemetry.certificate_until_s = std::max<int64_t>(0, certificate_until_s_);
  telemetry.resident_bytes = ResidentBytes();
  telemetry.process_ns = ProcessNs();
}

}  // namespace runnel
