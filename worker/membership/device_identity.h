#pragma once

// A worker's identity from start to start: a name that does not change, and an id that no other
// worker has, by which central tells a restarted worker from another one of its name. Both come
// from a small file in the state folder, which is locked while the worker lives, so that several
// workers of one user on one host differ.

#include <optional>
#include <string>

#include "proto/process/file_lock.h"

namespace runnel {

struct DeviceIdentity {
  std::string name;
  std::string id;                // empty: it cannot be kept
  std::optional<FileLock> lock;  // hold it as long as the worker lives
};

// given: the name that the user or a certificate says; empty: HOST and part of the id
// ("pi-4f09a2"). Where nothing can be kept the name has the process's number and another one takes
// it next time.
DeviceIdentity FindDeviceIdentity(const std::string& state_folder, const std::string& given,
                                  const std::string& host);

}  // namespace runnel
