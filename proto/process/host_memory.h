#pragma once

// How much memory this process can still get.

#include <cstdint>
#include <string>

namespace runnel {

// What other processes leave free on this host, and no more than the limit of this process's
// control group leaves; read from Linux's files under `root`. The largest int64 if nothing says.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace runnel
