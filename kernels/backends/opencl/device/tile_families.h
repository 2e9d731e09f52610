#pragma once

// The order in which a search tries tiles: those first that suit a family of devices.

#include <cstdint>
#include <vector>

#include "kernels/backends/opencl/device/device.h"
#include "kernels/backends/opencl/device/tile.h"

namespace runnel::opencl {

// All of Tiles(). The orders are general knowledge of the chips, none was timed on one:
// they say what is tried first, a search times it. `multiple`: a group should have a multiple of so
// many work-items (Session::GroupSizes), others come last; 0: any.
std::vector<Tile> TilesInOrder(const DeviceInfo& device, int64_t multiple);

}  // namespace runnel::opencl
