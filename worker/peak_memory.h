#pragma once

#include <cstdint>

namespace runnel {

// The most memory that this process has had resident, in bytes; 0 where the system does not tell.
int64_t PeakResidentBytes();

}  // namespace runnel
