// 3x3 convolutions of stride 1 as F(2x2, 3x3) in integers (kernels/ir/arithmetic/winograd.h, whose names these are): a
// tile of 2 x 2 outputs is A^T (sum over channels of U * V) A / 4, with 16 factors U of a filter and V of a tile of 4 x 4
// inputs. Weights of 4 bits and inputs of 6 give factors of 8 bits and the sums of the direct convolution, exactly.
//
// The factors lie by point, cell of four channels, and tile or output channel. A group has SIDE_X x SIDE_Y work-items for
// each of the 16 points, with TILE_ROWS x TILE_COLUMNS sums each; these meet in local memory, so that only what follows
// the outputs is written.

#ifdef WINOGRAD
#define POINTS 16

// The host's plan of one launch, beside the plan of the product.
typedef struct {
  int cells;                 // of input channels
  int first;                 // image of the launch
  Divisor tiles;             // of the launch
  Divisor of_image, across;  // tiles of an image, and of one row of them
  Divisor outs;              // output channels
} Winograd;

// Where a tile's outputs begin; n counts through all images.
typedef struct {
  int n, y, x;
} Corner;
Corner corner_of(int tile, const Winograd w) {
  const int image = quotient(tile, w.of_image), at = tile - image * w.of_image.by;
  const int row = quotient(at, w.across);
  Corner corner = {w.first + image, 2 * row, 2 * (at - row * w.across.by)};
  return corner;
}

__kernel ELEMENTS void winograd_weights(TENSOR(weight), __global uint *factors, Geometry g, Winograd w) {
  FOR_ITEMS(i, w.outs.by * w.cells) {
    const int cell = quotient(i, w.outs), out = i - cell * w.outs.by;
    char4 t[4][3];
    for (int x = 0; x < 3; ++x) {
      char4 column[3];
      for (int y = 0; y < 3; ++y) {
        const int at = (out * 9 + 3 * y + x) * g.c + 4 * cell;
        char v[4];
        for (int j = 0; j < 4; ++j) v[j] = 4 * cell + j < g.c ? DATA(const char, weight)[at + j] : (char)0;
        column[y] = (char4)(v[0], v[1], v[2], v[3]);
      }
      t[0][x] = column[0] + column[0];
      t[1][x] = column[0] + column[1] + column[2];
      t[2][x] = column[0] - column[1] + column[2];
      t[3][x] = column[2] + column[2];
    }
    for (int y = 0; y < 4; ++y) {
      const char4 row[4] = {t[y][0] + t[y][0], t[y][0] + t[y][1] + t[y][2], t[y][0] - t[y][1] + t[y][2],
                            t[y][2] + t[y][2]};
      for (int x = 0; x < 4; ++x) factors[((4 * y + x) * w.cells + cell) * w.outs.by + out] = as_uint(row[x]);
    }
  }
}

__kernel ELEMENTS void winograd_inputs(TENSOR(x), __global uint *factors, Geometry g, Winograd w) {
  FOR_ITEMS(i, w.tiles.by * w.cells) {
    const int cell = quotient(i, w.tiles), tile = i - cell * w.tiles.by;
    const Corner corner = corner_of(tile, w);
    char4 t[4][4];
    for (int x = 0; x < 4; ++x) {
      char4 column[4];
      for (int y = 0; y < 4; ++y) {
        const int h = corner.y - g.ph + y, at = corner.x - g.pw + x;
        column[y] = (char4)(0);
        if (h >= 0 && h < g.h && at >= 0 && at < g.w)
          column[y] = as_char4(load_channels(IMAGES(x), g.c, g.h * g.w, corner.n, 4 * cell, h * g.w + at));
      }
      t[0][x] = column[0] - column[2];
      t[1][x] = column[1] + column[2];
      t[2][x] = column[2] - column[1];
      t[3][x] = column[1] - column[3];
    }
    for (int y = 0; y < 4; ++y) {
      const char4 row[4] = {t[y][0] - t[y][2], t[y][1] + t[y][2], t[y][2] - t[y][1], t[y][1] - t[y][3]};
      for (int x = 0; x < 4; ++x)
        factors[((ulong)(4 * y + x) * w.cells + cell) * w.tiles.by + tile] = as_uint(row[x]);
    }
  }
}

// A^T m A / 4: the division leaves nothing.
int4 winograd_outputs(const int *m) {
  int t[2][4];
  for (int x = 0; x < 4; ++x) {
    t[0][x] = m[x] + m[4 + x] + m[8 + x];
    t[1][x] = m[4 + x] - m[8 + x] - m[12 + x];
  }
  return (int4)(t[0][0] + t[0][1] + t[0][2], t[0][1] - t[0][2] - t[0][3], t[1][0] + t[1][1] + t[1][2],
                t[1][1] - t[1][2] - t[1][3]) >> 2;
}

#define POINT_ITEMS (SIDE_X * SIDE_Y)
#define LOADED_CELLS (POINTS * DEPTH * (ROWS + COLUMNS))
#define POINT_SUMS (POINTS * ROWS * COLUMNS)

__kernel __attribute__((reqd_work_group_size(POINTS *POINT_ITEMS, 1, 1))) void winograd_forward(
    __global const uint *inputs, __global const uint *weights, AFTER_ARGUMENTS, Geometry g, Plan plan, Winograd w) {
  // First the factors, then the sums of all points.
  __local uint room[LOADED_CELLS > POINT_SUMS ? LOADED_CELLS : POINT_SUMS];
  __local uint slot;
  __local uint *right_room = room + POINTS * DEPTH * ROWS;
  const int item = get_local_id(0), point = item / POINT_ITEMS, x = item % SIDE_X, y = item / SIDE_X % SIDE_Y;
  const int row0 = get_group_id(0) * ROWS, column0 = get_group_id(1) * COLUMNS;
  const int tiles = w.tiles.by, outs = w.outs.by;
  After after;
  SET_AFTER(after)
  int sum[TILE_ROWS][TILE_COLUMNS];
  for (int r = 0; r < TILE_ROWS; ++r) {
    for (int c = 0; c < TILE_COLUMNS; ++c) sum[r][c] = 0;
  }
  for (int k = 0; k < w.cells; k += DEPTH) {
    for (int i = item; i < POINTS * DEPTH * ROWS; i += POINTS * POINT_ITEMS) {
      const int row = row0 + i % ROWS, cell = k + i / ROWS % DEPTH, p = i / (ROWS * DEPTH);
      room[i] = row < tiles && cell < w.cells ? inputs[((ulong)p * w.cells + cell) * tiles + row] : 0;
    }
    for (int i = item; i < POINTS * DEPTH * COLUMNS; i += POINTS * POINT_ITEMS) {
      const int column = column0 + i % COLUMNS, cell = k + i / COLUMNS % DEPTH, p = i / (COLUMNS * DEPTH);
      right_room[i] = column < outs && cell < w.cells ? weights[(p * w.cells + cell) * outs + column] : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < DEPTH; ++q) {
      Cell left[TILE_ROWS], right[TILE_COLUMNS];
      for (int r = 0; r < TILE_ROWS; r += VECTOR)
        READ_CELLS(left + r, room + (point * DEPTH + q) * ROWS + PLACE(r, x, SIDE_X));
      for (int c = 0; c < TILE_COLUMNS; c += VECTOR)
        READ_CELLS(right + c, right_room + (point * DEPTH + q) * COLUMNS + PLACE(c, y, SIDE_Y));
      for (int r = 0; r < TILE_ROWS; ++r) {
        for (int c = 0; c < TILE_COLUMNS; ++c) sum[r][c] = DOT(left[r], right[c], sum[r][c]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int r = 0; r < TILE_ROWS; ++r) {
    for (int c = 0; c < TILE_COLUMNS; ++c)
      room[(point * COLUMNS + PLACE(c, y, SIDE_Y)) * ROWS + PLACE(r, x, SIDE_X)] = (uint)sum[r][c];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  uint most = 0;
  for (int i = item; i < ROWS * COLUMNS; i += POINTS * POINT_ITEMS) {
    const int row = row0 + i % ROWS, column = column0 + i / ROWS;
    if (row >= tiles || column >= outs) continue;
    int m[POINTS];
    for (int p = 0; p < POINTS; ++p) m[p] = (int)room[p * (ROWS * COLUMNS) + i];
    int outputs[4];
    vstore4(winograd_outputs(m), 0, outputs);
    const Corner corner = corner_of(row, w);
    for (int o = 0; o < 4; ++o) {
      const int h = corner.y + o / 2, at = corner.x + o % 2;
      if (h >= g.oh || at >= g.ow) continue;
      const int position = h * g.ow + at;
      finish_sum(DATA(Sum, y), (ulong)(corner.n * g.oc + column) * plan.positions.by + position, outputs[o], after, g, 0,
                 corner.n * plan.positions.by + position, column, plan);
#ifdef HAS_LARGEST
      most = max(most, (uint)abs(outputs[o]));
#endif
    }
  }
#ifdef HAS_LARGEST
  if (after.largest != 0) group_max(most, &slot, after.largest);
#endif
  AFTER_ALL
}
#endif
