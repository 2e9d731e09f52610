#include "kernels/backends/opencl/device/tile_families.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace runnel::opencl {
namespace {

struct FamilyRow {
  absl::string_view name;  // part of "platform/device" in small letters
  std::array<Tile, 4> first;
};

constexpr FamilyRow kFamilies[] = {
    // 64 registers a thread, and local memory that is ordinary memory: few sums, small groups.
    {"mali", {{{4, 4, 4, 4, 8, 4}, {2, 2, 8, 8, 8, 2}, {4, 4, 8, 8, 8, 4}, {4, 1, 8, 8, 8, 1}}}},
    // A texture cache of its own beside the second level's.
    {"adreno",
     {{{4, 4, 8, 8, 8, 4, true},
       {8, 4, 8, 8, 8, 4, true},
       {4, 4, 8, 8, 8, 4},
       {8, 4, 8, 8, 8, 4}}}},
    {"powervr",
     {{{4, 4, 8, 8, 8, 4}, {2, 2, 8, 8, 8, 2}, {4, 4, 8, 8, 8, 4, true}, {4, 4, 4, 4, 8, 4}}}},
    // 255 registers a thread, much local memory: many sums.
    {"nvidia",
     {{{8, 8, 8, 8, 8, 4}, {8, 8, 16, 16, 4, 4}, {4, 4, 16, 16, 8, 4}, {8, 4, 16, 16, 8, 4}}}},
    // Wavefronts of 64.
    {"amd", {{{8, 4, 8, 8, 8, 4}, {4, 4, 16, 16, 8, 4}, {8, 8, 8, 8, 8, 4}, {8, 4, 16, 16, 8, 4}}}},
    {"radeon",
     {{{8, 4, 8, 8, 8, 4}, {4, 4, 16, 16, 8, 4}, {8, 8, 8, 8, 8, 4}, {8, 4, 16, 16, 8, 4}}}},
    // 128 registers of 8 lanes a thread.
    {"intel",
     {{{4, 4, 8, 8, 8, 4}, {8, 4, 8, 8, 8, 4}, {4, 4, 16, 16, 8, 4}, {4, 4, 8, 8, 16, 4}}}},
};

}  // namespace

std::vector<Tile> TilesInOrder(const DeviceInfo& device, int64_t multiple) {
  std::vector<Tile> tiles;
  const std::string name =
      absl::AsciiStrToLower(absl::StrCat(device.platform_name, "/", device.name));
  // A driver for the host's processor is of no family of GPUs, whoever made the processor.
  const bool is_gpu = (device.type & CL_DEVICE_TYPE_GPU) != 0;
  for (const FamilyRow& row : kFamilies) {
    if (!is_gpu || !absl::StrContains(name, row.name)) continue;
    tiles.assign(row.first.begin(), row.first.end());
    break;
  }
  for (const Tile& tile : Tiles()) {
    if (std::find(tiles.begin(), tiles.end(), tile) == tiles.end()) tiles.push_back(tile);
  }
  std::stable_partition(tiles.begin(), tiles.end(), [&](const Tile& tile) {
    return multiple <= 0 || tile.items() % multiple == 0;
  });
  return tiles;
}

}  // namespace runnel::opencl
