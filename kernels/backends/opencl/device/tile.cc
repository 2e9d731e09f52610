#include "kernels/backends/opencl/device/tile.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace runnel::opencl {
namespace {

constexpr Tile kSmall = {1, 1, 8, 8, 8, 1};
constexpr Tile kLarge = {4, 4, 8, 8, 8, 1};
constexpr Tile kSmallest = {4, 4, 4, 4, 8, 4};
// A product with fewer rows or columns gets the small one.
constexpr int64_t kSmallSide = 8;

// Ordered from tiles that are good on most devices to tiles for few.
constexpr Tile kTiles[] = {
    kLarge,
    kSmall,
    {4, 4, 8, 8, 8, 4},
    {4, 4, 16, 16, 8, 4},
    {8, 8, 8, 8, 8, 4},
    {2, 2, 16, 16, 8, 2},
    {8, 4, 8, 8, 8, 4},
    {8, 8, 16, 16, 4, 4},
    {2, 2, 8, 8, 8, 2},
    {4, 1, 8, 8, 8, 1},
    {1, 4, 8, 8, 8, 1},
    {8, 1, 16, 4, 8, 1},
    kSmallest,
    {4, 4, 8, 8, 16, 4},
    {8, 4, 16, 16, 8, 4},
    {16, 16, 8, 8, 4, 4},
    {4, 4, 8, 8, 8, 4, true},
    {8, 4, 8, 8, 8, 4, true},
    {8, 8, 8, 8, 8, 4, true},
    {4, 4, 16, 16, 8, 4, true},
    {4, 1, 8, 8, 8, 1, true},
};

}  // namespace

std::string ToText(const Tile& tile) {
  return absl::StrCat(tile.rows, "x", tile.columns, " by ", tile.side_x, "x", tile.side_y,
                      ", depth ", tile.depth, ", vector ", tile.vector,
                      tile.image ? ", weights image" : "");
}

std::string BuildOptionsOf(const Tile& tile) {
  return absl::StrCat(" -DTILE_ROWS=", tile.rows, " -DTILE_COLUMNS=", tile.columns,
                      " -DSIDE_X=", tile.side_x, " -DSIDE_Y=", tile.side_y, " -DDEPTH=", tile.depth,
                      " -DVECTOR=", tile.vector, tile.image ? " -DIMAGE_WEIGHTS" : "");
}

absl::Span<const Tile> Tiles() { return kTiles; }

std::optional<Tile> ParseTile(absl::string_view text) {
  for (const Tile& tile : kTiles) {
    if (ToText(tile) == text) return tile;
  }
  return std::nullopt;
}

const Tile& TileByRule(int64_t rows, int64_t columns) {
  return std::min(rows, columns) <= kSmallSide ? kSmall : kLarge;
}

const Tile* WinogradTileFor(const DeviceInfo& device) {
  static constexpr Tile kWinogradTiles[] = {{4, 4, 4, 4, 2, 4}, {4, 4, 2, 2, 4, 4}};
  constexpr int64_t kPoints = 16, kOtherBytes = 64;
  for (const Tile& tile : kWinogradTiles) {
    // Its sums take the place of what was loaded.
    const int64_t sums = 4 * int64_t{tile.group_rows()} * tile.group_columns();
    const int64_t bytes = kPoints * std::max(tile.local_bytes(), sums) + kOtherBytes;
    if (kPoints * tile.items() <= device.max_work_group && bytes <= device.local_bytes)
      return &tile;
  }
  return nullptr;
}

absl::Span<const Tile> SmallerTiles() {
  static constexpr Tile kSmaller[] = {kLarge, kSmall, kSmallest};
  return kSmaller;
}

std::vector<Tile> TilesInPlaceOf(const Tile& tile) {
  std::vector<Tile> tiles = {tile};
  for (const Tile& smaller : SmallerTiles()) {
    if (smaller.items() <= tile.items()) tiles.push_back(smaller);
  }
  return tiles;
}

absl::StatusOr<ChosenTiles> ForcedTiles(const std::string& text, const DeviceInfo& device) {
  if (text.empty()) return ChosenTiles();
  const std::optional<Tile> tile = ParseTile(text);
  if (tile.has_value() && Fits(*tile, device)) return ChosenTiles({{kEveryClass, *tile}});
  std::vector<std::string> there;
  for (const Tile& one : kTiles) {
    if (Fits(one, device)) there.push_back(absl::StrCat("'", ToText(one), "'"));
  }
  return absl::InvalidArgumentError(absl::StrCat("opencl.tile '", text, "': device ", device.name,
                                                 " has ", absl::StrJoin(there, ", ")));
}

bool Fits(const Tile& tile, const DeviceInfo& device) {
  // The kernel has some local memory beside.
  constexpr int64_t kOtherBytes = 64;
  return (!tile.image || device.image_texels > 0) && tile.items() <= device.max_work_group &&
         tile.local_bytes() + kOtherBytes <= device.local_bytes;
}

}  // namespace runnel::opencl
