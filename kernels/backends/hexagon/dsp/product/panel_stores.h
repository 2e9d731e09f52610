#pragma once

// Stores a tile's finished sums: rows of C that lie in one or more pieces, or bytes.

#include "kernels/backends/hexagon/dsp/product/product.h"

namespace runnel::hexagon {

// Places of a tile's target, found once for all its rows.
struct Places {
  // Each vector of sums is whole and goes to one place, at[n] elements from its row of C.
  bool direct = false;
  uint32_t at[4] = {};
  // Elements of a piece, if all pieces are whole images as long as C's rows are apart, so that the
  // rows of an image follow each other in C; else 0.
  int image = 0;
};
Places PlacesOf(const TileTarget& target);

// Finished sums of rows first_row.., at most 12; four vectors to a row, of which those that the
// tile lacks hold anything. Changes them.
void StorePanel(const TileTarget& target, const Places& places, int first_row, int rows,
                Vector* sums);

}  // namespace runnel::hexagon
