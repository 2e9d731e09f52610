#pragma once

// A worker's measurements of itself, kept from run to run: a folder with one small file a request
// (message KeptMeasurement of control.proto). A run that repeats a request starts without
// measuring.
// || An answer counts only for the same request, byte for byte, and the same device. Damaged files,
// and those of another release, count as absent. One thread.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/transport/control/control.h"

namespace runnel {

class MeasurementStore {
 public:
  // folder: made when the first answer is kept; empty: nothing is kept. device: all that times
  // depend on beside the request (DescribeDevice).
  MeasurementStore(std::string folder, std::string device);

  // The answer to an equal request, with `kept` set.
  std::optional<ProfileReport> Find(const ProfileRequest& request) const;
  // Errors name the file (proto/process/atomic_file.h).
  absl::Status Keep(const ProfileRequest& request, const ProfileReport& report) const;

 private:
  std::string folder_;
  std::string device_;
};

// The folder for programs' knowledge of this host: $RUNNEL_STATE_DIR, $XDG_STATE_HOME/runnel, or
// ~/.local/state/runnel; the first usable one. Empty: none is usable, or $RUNNEL_STATE_DIR is set
// and empty.
std::string DefaultStateFolder();

}  // namespace runnel
