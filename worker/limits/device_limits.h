#pragma once

// The limits of this device as they stand: reads battery, heat and clock, counts a day's data, and says
// whether the worker may take part (limit_rows.h).

#include <cstdint>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/limits/limit_rows.h"

namespace runnel {

// One thread.
class DeviceLimits {
 public:
  struct Parts {
    std::function<DeviceReadings()> read_device;
    std::function<int64_t()> take_data_bytes;  // since the last call
    std::function<std::time_t()> now_s;        // since 1970
    // Where a day's data are kept, so that a new start goes on counting; empty: nowhere.
    std::string data_file = {};
  };
  DeviceLimits(LimitSettings settings, Parts parts);

  // FailedPrecondition: a limit of heat, and the device shows no temperature.
  absl::Status Check() const;
  // Why the worker takes no part; empty: it may. Reads everything anew.
  std::string Reason();
  // "battery 20 % or more, 22:00 to 7:00"; empty: there is none.
  std::string Text() const;
  bool empty() const { return Text().empty(); }

 private:
  void CountData(const std::tm& local);

  const LimitSettings settings_;
  const Parts parts_;
  std::vector<bool> held_;  // by row
  int64_t data_bytes_ = 0;  // of the day
  int64_t kept_bytes_ = 0;  // that data_file says
  int day_ = -1;            // of data_bytes_: the year times 1000, and the day of the year
};

}  // namespace runnel
