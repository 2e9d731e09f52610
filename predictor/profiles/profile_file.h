#pragma once

// The measured times of one device configuration as a file: the predictor's training data
// (predictor/profiles/), written by `runnel-lab profile`. JSON, one sub-model a line:
//
//   {"format": "runnel-profile", "version": 2, "name": "quota_50", "family": "quota", ...
//    "columns": "model first last batch seconds_1 spread_1 seconds_2 spread_2",
//    "sub_models": [["lenet",0,2,16,0.00123,0.012,0.00122,0.01],
//                   ...]}
//
// Pure functions, any thread. Contents come from outside: everything is checked before it is used.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// One sub-model: forward, backward and update of one micro-batch.
struct SubModelTime {
  std::string model;  // name of the model in the zoo
  LayerRange range;
  int64_t batch = 0;     // samples
  double seconds_1 = 0;  // median of the first pass
  double spread_1 = 0;   // distance between the quartiles over the median
  double seconds_2 = 0;  // second pass; 0: there was none
  double spread_2 = 0;

  friend bool operator==(const SubModelTime&, const SubModelTime&) = default;
};

struct DeviceProfile {
  std::string name;  // name of the configuration: "quota_50"
  // family of configurations: "quota". Cross-validation leaves out whole families
  std::string family;
  std::string host;  // processor and machine, for people
  std::string date;  // date of the passes, for people
  int64_t threads = 1;
  double cpu_share = 1;  // processor time that the worker may use, in cores a thread; 1: all
  std::string recipe = "fp32";
  std::string backend = "cpu";  // backend with its cap, if any: "cpu:avx2"
  std::string numerics_class;   // class that the worker reported
  int64_t batch = 0;            // the configuration's; a line's own may be a fraction of it
  std::string load = "none";    // other load on the processor: "none", "spin:nice10", ...
  std::string clock =
      "wall";               // unit of time: "wall", "1.3 ns a step" (worker/measure/clock_probe.h)
  int64_t repetitions = 0;  // measurements in a median
  std::vector<SubModelTime> sub_models;

  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

inline constexpr size_t kMaxProfileBytes = size_t{4} << 20;
inline constexpr size_t kMaxProfileLines = 20'000;

// How numerics classes of emulated processors end, "hexagon/v67-emulated".
inline constexpr absl::string_view kEmulatedClassEnd = "-emulated";

// InvalidArgument names the key or the row and the defect: another format or version, an unknown or
// missing key, a value of another type or out of range, a processor that is emulated, a sub-model that
// is there twice, more than the limits above.
absl::StatusOr<DeviceProfile> ParseProfile(absl::string_view text);
// InvalidArgument: the class is one of an emulated processor, whose times say nothing of any other's.
absl::Status CheckIsTimed(absl::string_view numerics_class);
// ParseProfile reads the text back to an equal profile (seconds to 7 digits).
std::string FormatProfile(const DeviceProfile& profile);

}  // namespace runnel
