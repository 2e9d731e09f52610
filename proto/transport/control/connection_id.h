#pragma once

#include <cstdint>

#include "proto/base/ids.h"

namespace runnel {

// A worker's stream as central knows it: counted up from 1, never reused within one CentralControl.
using ConnectionId = StrongInt<struct ConnectionIdTag, int64_t>;

}  // namespace runnel
