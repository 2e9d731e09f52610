#pragma once

// The tile of a product on the device: each is a build of cl/product.cl. No result depends on it.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backends/opencl/device/device.h"

namespace runnel::opencl {

struct Tile {
  int rows = 4;  // sums of a work-item: rows x columns
  int columns = 4;
  int side_x = 8;  // work-items of a group: side_x x side_y
  int side_y = 8;
  int depth = 8;       // cells of each row that a group loads at once; int8: of four values
  int vector = 1;      // cells that a work-item reads at once; divides rows and columns
  bool image = false;  // weights are read as an image, through the texture cache

  int group_rows() const { return rows * side_x; }
  int group_columns() const { return columns * side_y; }
  int items() const { return side_x * side_y; }
  int64_t local_bytes() const { return 4 * int64_t{depth} * (group_rows() + group_columns()); }

  friend auto operator<=>(const Tile&, const Tile&) = default;
};

// "4x4 by 8x8, depth 8, vector 1", and ", weights image".
std::string ToText(const Tile& tile);
// -DTILE_ROWS=4 ...
std::string BuildOptionsOf(const Tile& tile);

// The tiles that a tuner may choose from: the rule's two first.
absl::Span<const Tile> Tiles();
// The tile of Tiles() with this text; none: there is no such tile.
std::optional<Tile> ParseTile(absl::string_view text);
// For products with few rows or columns, as of depthwise convolutions, a large tile is mostly
// empty.
const Tile& TileByRule(int64_t rows, int64_t columns);
// The tile that each of the 16 points of F(2x2, 3x3) has; its groups have 16 times the work-items. Null: none fits.
const Tile* WinogradTileFor(const DeviceInfo& device);
// What is taken in place of a tile whose groups are too large for its kernel: the rule's other ones,
// and one of 16 work-items, without images.
absl::Span<const Tile> SmallerTiles();
// The tile, and those of SmallerTiles with no more work-items.
std::vector<Tile> TilesInPlaceOf(const Tile& tile);
// Whether the device has so many work-items in a group, so much local memory, and images where the
// tile reads one.
bool Fits(const Tile& tile, const DeviceInfo& device);

// The tile of each class of shapes (ProductPlan::shape_class) that is not the rule's; of
// kEveryClass: of all.
using ChosenTiles = std::map<std::string, Tile>;
inline constexpr char kEveryClass[] = "*";
// kEveryClass with the tile that opencl.tile names; nothing for an empty text.
// InvalidArgument lists the device's tiles.
absl::StatusOr<ChosenTiles> ForcedTiles(const std::string& text, const DeviceInfo& device);

}  // namespace runnel::opencl
