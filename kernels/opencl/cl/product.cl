// All products of int8 mantissas as one tiled product C[rows][columns] = sum over depth of
// A[row][k] * B[column][k], four of depth in each dot product. Convolutions gather their operands
// while they are loaded into local memory; a linear layer is a 1 x 1 convolution of one position.
//
//            rows               columns        depth (the innermost last)
// forward    n, oh, ow          oc             kh, kw, ic
// input      n, h, w            ic             kh, kw, oc
// weight     oc                 kh, kw, ic     n, oh, ow
//
// The build says how many registers a work-item has (TILE_ROWS x TILE_COLUMNS) and which dot
// product the device takes (DOT_...). Sums are exact, so that neither can be seen in the result.

#if defined(DOT_KHR)
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
// Not the saturating form, whose result differs where a sum overflows on its way.
#define DOT(a, b, sum) ((sum) + dot_4x8packed_ss_int((a), (b)))
#elif defined(DOT_ARM)
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_int8 : enable
#define DOT(a, b, sum) ((sum) + arm_dot(as_char4(a), as_char4(b)))
#elif defined(DOT_NVIDIA)
int dp4a(uint a, uint b, int sum) {
  int result;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
  return result;
}
#define DOT(a, b, sum) dp4a((a), (b), (sum))
#elif defined(DOT_MAD24)
int dot_mad24(int4 a, int4 b, int sum) {
  return mad24(a.x, b.x, mad24(a.y, b.y, mad24(a.z, b.z, mad24(a.w, b.w, sum))));
}
#define DOT(a, b, sum) \
  dot_mad24(convert_int4(as_char4(a)), convert_int4(as_char4(b)), (sum))
#else
int dot_widened(int4 products, int sum) {
  return sum + products.x + products.y + products.z + products.w;
}
#define DOT(a, b, sum) \
  dot_widened(convert_int4(as_char4(a)) * convert_int4(as_char4(b)), (sum))
#endif

#define SIDE 8  // of a work-group
#define ROWS (SIDE * TILE_ROWS)
#define COLUMNS (SIDE * TILE_COLUMNS)
#define DEPTH 8  // of a tile, in fours

#define FORWARD 0
#define INPUT_GRADIENT 1
#define WEIGHT_GRADIENT 2

uint packed(char a, char b, char c, char d) { return as_uint((char4)(a, b, c, d)); }

char image_at(__global const char *images, int channels, int height, int width, int n, int c, int h,
              int w) {
  if (h < 0 || h >= height || w < 0 || w >= width) return 0;
  return images[((n * channels + c) * height + h) * width + w];
}

// Of output row `position` and tap: where the input is read.
char input_at(__global const char *x, const Geometry g, int n, int c, int position, int tap) {
  return image_at(x, g.c, g.h, g.w, n, c, position / g.ow * g.sh - g.ph + tap / g.kw,
                  position % g.ow * g.sw - g.pw + tap % g.kw);
}

// Of input row `position` and tap: the output that read it by that tap.
char output_at(__global const char *dy, const Geometry g, int n, int c, int position, int tap) {
  const int h = position / g.w + g.ph - tap / g.kw, w = position % g.w + g.pw - tap % g.kw;
  if (h < 0 || w < 0 || h % g.sh != 0 || w % g.sw != 0) return 0;
  return image_at(dy, g.oc, g.oh, g.ow, n, c, h / g.sh, w / g.sw);
}

// Operands of group `group` at k .. k + 3; zeros outside.
uint load_a(const int mode, __global const char *a, const Geometry g, int group, int row, int k) {
  const int ic = g.c / g.groups, oc = g.oc / g.groups, taps = g.kh * g.kw;
  char v[4];
  if (mode == WEIGHT_GRADIENT) {
    const int positions = g.oh * g.ow;
    int n = k / positions, position = k % positions;
    for (int j = 0; j < 4; ++j) {
      v[j] = n < g.n ? a[(n * g.oc + group * oc + row) * positions + position] : (char)0;
      if (++position == positions) position = 0, ++n;
    }
  } else {
    const int channels = mode == FORWARD ? ic : oc;
    const int positions = mode == FORWARD ? g.oh * g.ow : g.h * g.w;
    const int n = row / positions, position = row % positions;
    int tap = k / channels, c = k % channels;
    for (int j = 0; j < 4; ++j) {
      v[j] = 0;
      if (tap < taps) {
        v[j] = mode == FORWARD ? input_at(a, g, n, group * ic + c, position, tap)
                               : output_at(a, g, n, group * oc + c, position, tap);
      }
      if (++c == channels) c = 0, ++tap;
    }
  }
  return packed(v[0], v[1], v[2], v[3]);
}

uint load_b(const int mode, __global const char *b, const Geometry g, int group, int column,
            int k) {
  const int ic = g.c / g.groups, oc = g.oc / g.groups, taps = g.kh * g.kw;
  char v[4];
  if (mode == FORWARD) {
    __global const char *row = b + (group * oc + column) * taps * ic;
    for (int j = 0; j < 4; ++j) v[j] = k + j < taps * ic ? row[k + j] : (char)0;
  } else if (mode == INPUT_GRADIENT) {
    int tap = k / oc, c = k % oc;
    for (int j = 0; j < 4; ++j) {
      v[j] = tap < taps ? b[((group * oc + c) * taps + tap) * ic + column] : (char)0;
      if (++c == oc) c = 0, ++tap;
    }
  } else {
    const int positions = g.oh * g.ow;
    const int tap = column / ic, c = group * ic + column % ic;
    int n = k / positions, position = k % positions;
    for (int j = 0; j < 4; ++j) {
      v[j] = n < g.n ? input_at(b, g, n, c, position, tap) : (char)0;
      if (++position == positions) position = 0, ++n;
    }
  }
  return packed(v[0], v[1], v[2], v[3]);
}

int place_of(const int mode, const Geometry g, int group, int row, int column) {
  const int ic = g.c / g.groups, oc = g.oc / g.groups;
  if (mode == WEIGHT_GRADIENT) return (group * oc + row) * g.kh * g.kw * ic + column;
  if (mode == FORWARD) {
    const int positions = g.oh * g.ow;
    return (row / positions * g.oc + group * oc + column) * positions + row % positions;
  }
  const int positions = g.h * g.w;
  return (row / positions * g.c + group * ic + column) * positions + row % positions;
}

// The host's plan of a product.
typedef struct {
  int rows, columns, depth;  // of a group
  int slices, slice_depth;   // depth is cut so that there is work for each compute unit
  uint elements;             // of C, all groups
} Plan;

// Sums of a slice go to `sums` (slice s at s * elements). `largest`: if it is not null, the sums
// are C itself, whose largest magnitude goes there.
void product(const int mode, __global const char *a, __global const char *b, __global int *sums,
             __global uint *largest, const Geometry g, const Plan plan, __local uint *tile_a,
             __local uint *tile_b, __local uint *slot) {
  const int group = get_group_id(2) / plan.slices, slice = get_group_id(2) % plan.slices;
  const int row0 = get_group_id(0) * ROWS, column0 = get_group_id(1) * COLUMNS;
  const int x = get_local_id(0), y = get_local_id(1);
  const int end = min(plan.depth, (slice + 1) * plan.slice_depth);
  int sum[TILE_ROWS][TILE_COLUMNS];
  for (int r = 0; r < TILE_ROWS; ++r) {
    for (int c = 0; c < TILE_COLUMNS; ++c) sum[r][c] = 0;
  }
  for (int k = slice * plan.slice_depth; k < end; k += 4 * DEPTH) {
    for (int i = y * SIDE + x; i < ROWS * DEPTH; i += SIDE * SIDE) {
      const int row = row0 + i % ROWS, at = k + 4 * (i / ROWS);
      tile_a[i] = row < plan.rows && at < end ? load_a(mode, a, g, group, row, at) : 0;
    }
    for (int i = y * SIDE + x; i < COLUMNS * DEPTH; i += SIDE * SIDE) {
      const int column = column0 + i % COLUMNS, at = k + 4 * (i / COLUMNS);
      tile_b[i] = column < plan.columns && at < end ? load_b(mode, b, g, group, column, at) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < DEPTH; ++q) {
      uint left[TILE_ROWS], right[TILE_COLUMNS];
      for (int r = 0; r < TILE_ROWS; ++r) left[r] = tile_a[q * ROWS + x + SIDE * r];
      for (int c = 0; c < TILE_COLUMNS; ++c) right[c] = tile_b[q * COLUMNS + y + SIDE * c];
      for (int r = 0; r < TILE_ROWS; ++r) {
        for (int c = 0; c < TILE_COLUMNS; ++c) sum[r][c] = DOT(left[r], right[c], sum[r][c]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint most = 0;
  for (int r = 0; r < TILE_ROWS; ++r) {
    for (int c = 0; c < TILE_COLUMNS; ++c) {
      const int row = row0 + x + SIDE * r, column = column0 + y + SIDE * c;
      if (row >= plan.rows || column >= plan.columns) continue;
      sums[(ulong)slice * plan.elements + place_of(mode, g, group, row, column)] = sum[r][c];
      most = max(most, (uint)abs(sum[r][c]));
    }
  }
  if (largest != 0) group_max(most, slot, largest);
}

#define PRODUCT(name, mode)                                                                       \
  __kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void name(                        \
      TENSOR(a), TENSOR(b), TENSOR(y), int is_whole, Geometry g, Plan plan) {                     \
    __local uint tile_a[ROWS * DEPTH], tile_b[COLUMNS * DEPTH], slot;                             \
    product(mode, DATA(const char, a), DATA(const char, b), DATA(int, y),                         \
            is_whole ? (__global uint *)&TAIL(y)->max_abs : 0, g, plan, tile_a, tile_b, &slot);   \
  }
PRODUCT(product_forward, FORWARD)
PRODUCT(product_input_gradient, INPUT_GRADIENT)
PRODUCT(product_weight_gradient, WEIGHT_GRADIENT)

// Adds up the slices.
__kernel ELEMENTS void add_slices(__global const int *sums, Plan plan, TENSOR(y), int is_wide,
                                  __global ulong *targets) {
  __local ulong slots[GROUP];
  ulong most = 0;
  FOR_ITEMS(i, plan.elements) {
    long total = 0;
    for (int slice = 0; slice < plan.slices; ++slice) {
      total += sums[(ulong)slice * plan.elements + i];
    }
    if (is_wide) {
      DATA(long, y)[i] = total;
    } else {
      DATA(int, y)[i] = (int)total;
    }
    most = max(most, (ulong)abs(total));
  }
  group_max_wide(most, slots, targets);
}

__kernel void finish_slices(TENSOR(y), __global const ulong *targets, uint groups) {
  TAIL(y)->max_abs = (long)max_of_groups(targets, groups);
}
