#pragma once

// Memory that this process can still get.

#include <cstdint>
#include <string>

namespace runnel {

// Memory that is free on this host, at most the rest of this process's control group; read from
// Linux's files under `root`. The largest int64 if no file tells.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace runnel
