// All products as one tiled product C[rows][columns] = sum over depth of A[row][k] * B[column][k].
// Convolutions gather their operands while they are loaded into local memory; a linear layer is a
// 1 x 1 convolution of one position.
//
//            rows               columns        depth (the innermost last)
// forward    n, oh, ow          oc             kh, kw, ic
// input      n, h, w            ic             kh, kw, oc
// weight     oc                 kh, kw, ic     n, oh, ow
//
// With FLOATS operands are floats, and (kh, kw) is innermost, as their weights lie; with
// HALF_WEIGHTS too, the weights are halves, which are widened as they are loaded; with
// HALF_ACTIVATIONS inputs and outputs may be halves, which their operand says. Else they are
// int8 mantissas, of which a cell holds four for one dot product; DOT_... says how that is computed.
// With CODES too, a forward of INT8 inference requantises its sums where it has them.
//
// The build says the tile (kernels/backends/opencl/device/tile.h): registers of a work-item TILE_ROWS x
// TILE_COLUMNS, work-items of a group SIDE_X x SIDE_Y, cells of depth that a group loads at once
// DEPTH, cells that a work-item reads at once VECTOR. None of them can be seen in the result: each
// sum has its terms in ascending order of depth.

#if defined(FLOATS)
// Whether the compiler joins a product and a sum would depend on the tile.
#pragma OPENCL FP_CONTRACT OFF
#ifdef FP_FAST_FMAF
#define DOT(a, b, sum) fma((a), (b), (sum))
#else
#define DOT(a, b, sum) ((sum) + (a) * (b))
#endif
#elif defined(DOT_KHR)
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

#ifdef FLOATS
typedef float Value;
typedef float Cell;
typedef float Sum;
#define PACKED 1  // values of a cell
Cell cell_of(const Value *v) { return v[0]; }
#ifdef HALF_WEIGHTS
// Of core OpenCL C: a device needs no arithmetic of halves for them.
#define WEIGHT(weights, i) vload_half((i), (__global const half *)(weights))
#endif
#else
typedef char Value;
typedef uint Cell;
typedef int Sum;
#define PACKED 4
Cell cell_of(const Value *v) { return as_uint((char4)(v[0], v[1], v[2], v[3])); }
#endif

// The right operand, where it is the weights: with IMAGE_WEIGHTS an image (kernels/backends/opencl/
// weight_images.h), of which the texture cache keeps what a group reads again.
#ifdef IMAGE_WEIGHTS
#define WEIGHTS __read_only image1d_buffer_t weights, int first
#define THE_WEIGHTS weights, first
#ifdef FLOATS
float weight_of(WEIGHTS, int i) {
  const int at = first + i;
  const float4 texel = read_imagef(weights, at / 4);
  return at % 4 == 0 ? texel.x : at % 4 == 1 ? texel.y : at % 4 == 2 ? texel.z : texel.w;
}
#else
// The four bytes that byte `at` is one of.
uint word_of(__read_only image1d_buffer_t weights, int at) {
  return lane_of(read_imageui(weights, at / 16), at / 4 % 4);
}
char weight_of(WEIGHTS, int i) {
  const int at = first + i;
  return (char)(word_of(weights, at) >> 8 * (at % 4));
}
#endif
#else
#define WEIGHTS __global const Value *weights
#define THE_WEIGHTS weights
#ifndef WEIGHT
#define WEIGHT(weights, i) ((weights)[i])
#endif
Value weight_of(WEIGHTS, int i) { return WEIGHT(weights, i); }
#endif

// An operand that is no weight.
#if defined(FLOATS) && defined(HALF_ACTIVATIONS)
typedef struct {
  __global const void *data;
  int stored;
} Images;
#define IMAGES(name) ((Images){DATA(const void, name), STORED(name)})
#define IMAGE_VALUE(images, i) read_float((images).data, (i), (images).stored)
#elif defined(FLOATS)
typedef __global const Value *Images;
#define IMAGES(name) DATA(const Value, name)
#define IMAGE_VALUE(images, i) ((images)[i])
#else
typedef struct {
  __global const Value *data;
  int is_packed;
} Images;
#define IMAGES(name) ((Images){DATA(const Value, name), IS_PACKED(name)})
// Of images that are not packed.
#define IMAGE_VALUE(images, i) ((images).data[i])
// Of packed ones, the cell with channel c at one position of its plane.
#define IMAGE_CELL(images, channels, plane, n, c, at) \
  ((__global const Cell *)(images).data)[((n) * (channels) + (c)) / 4 * (plane) + (at)]
#endif

#define ROWS (SIDE_X * TILE_ROWS)
#define COLUMNS (SIDE_Y * TILE_COLUMNS)

#if VECTOR == 4
#define READ_CELLS(to, from) vstore4(vload4(0, (from)), 0, (to))
#elif VECTOR == 2
#define READ_CELLS(to, from) vstore2(vload2(0, (from)), 0, (to))
#else
#define READ_CELLS(to, from) (*(to) = *(from))
#endif
// Of a work-item's register i: its row or column in the group's tile.
#define PLACE(i, item, side) ((i) / VECTOR * ((side) * VECTOR) + (item) * VECTOR + (i) % VECTOR)

#define FORWARD 0
#define INPUT_GRADIENT 1
#define WEIGHT_GRADIENT 2

// The host's plan of a product. Devices have no instruction for a division: one takes as long as some
// twenty dot products. So the host gives each divisor as a multiplier (QuotientOf).
typedef struct {
  int by;
  uint multiplier, shift;
} Divisor;

typedef struct {
  int rows, columns, depth;  // of a group
  int slices, slice_depth;   // depth is cut so that there is work for each compute unit
  uint elements;             // of C, all groups
  int ic, oc;                // channels of a group
  int dh, dw;                // dilation
  int is_point;              // whether each position reads itself alone: 1 x 1, stride 1, no padding
  Divisor inner;             // the innermost of (tap, channel), which depth or columns run through
  Divisor positions, width;  // of the image whose positions rows or depth run through
  Divisor kw, sh, sw;        // of the window
  Divisor of_slices;
  Divisor of_channels;  // by oc
} Plan;

// x / d.by for 0 <= x < 2^31.
int quotient(int x, const Divisor d) { return (int)(mul_hi((uint)x << 1, d.multiplier) >> d.shift); }

// A place within depth, or within a weight's columns: a tap of the window and a channel.
typedef struct {
  int tap, y, x;  // the tap, and its row and column
  int c;
} Inner;

Inner inner_of(int at, const Plan plan) {
  const int outer = quotient(at, plan.inner), rest = at - outer * plan.inner.by;
  Inner inner;
#ifdef FLOATS
  inner.tap = rest;
  inner.c = outer;
#else
  inner.tap = outer;
  inner.c = rest;
#endif
  inner.y = quotient(inner.tap, plan.kw);
  inner.x = inner.tap - inner.y * plan.kw.by;
  return inner;
}

// Moves on to the next tap of a window; the last one's is no tap.
void advance_tap(Inner *inner, const Plan plan) {
  ++inner->tap;
  if (++inner->x == plan.kw.by) inner->x = 0, ++inner->y;
}

void advance(Inner *inner, const Plan plan) {
#ifdef FLOATS
  advance_tap(inner, plan);
  if (inner->tap == plan.inner.by) inner->tap = inner->y = inner->x = 0, ++inner->c;
#else
  if (++inner->c == plan.inner.by) inner->c = 0, advance_tap(inner, plan);
#endif
}

bool is_inside(const Inner inner, int channels, int taps) {
  return inner.tap < taps && inner.c < channels;
}

// A position of an image: its number, row and column.
typedef struct {
  int n, at, y, x;
} Position;

// The one that `row` counts to, through all images.
Position position_of(int row, const Plan plan) {
  Position position;
  position.n = quotient(row, plan.positions);
  position.at = row - position.n * plan.positions.by;
  position.y = quotient(position.at, plan.width);
  position.x = position.at - position.y * plan.width.by;
  return position;
}

void advance_position(Position *position, const Plan plan) {
  if (++position->x == plan.width.by) position->x = 0, ++position->y;
  if (++position->at == plan.positions.by)
    position->at = position->y = position->x = 0, ++position->n;
}

// Where weight (out, in of the group, tap) lies.
int weight_at(int oc, int c, int tap, int channels, int taps) {
#ifdef FLOATS
  return (oc * channels + c) * taps + tap;
#else
  return (oc * taps + tap) * channels + c;
#endif
}

Value image_at(const Images images, int channels, int height, int width, int n, int c, int h,
              int w) {
  if (h < 0 || h >= height || w < 0 || w >= width) return 0;
  return IMAGE_VALUE(images, ((n * channels + c) * height + h) * width + w);
}

#ifndef FLOATS
// Channels c .. c + 3 of an image at one position of its plane; zeros behind the last channel.
Cell load_channels(const Images images, int channels, int plane, int n, int c, int at) {
  if (images.is_packed) return IMAGE_CELL(images, channels, plane, n, c, at);
  const int first = (n * channels + c) * plane + at;
  Value v[PACKED];
  for (int j = 0; j < PACKED; ++j)
    v[j] = c + j < channels ? IMAGE_VALUE(images, first + j * plane) : (Value)0;
  return cell_of(v);
}
#endif

// What an output's position reads of the input by a tap.
Value input_at(const Images x, const Geometry g, const Plan plan, int c, const Position position,
              const Inner tap) {
  return image_at(x, g.c, g.h, g.w, position.n, c, position.y * g.sh - g.ph + tap.y * plan.dh,
                  position.x * g.sw - g.pw + tap.x * plan.dw);
}

// The output that read an input's position by a tap.
Value output_at(const Images dy, const Geometry g, const Plan plan, int c, const Position position,
               const Inner tap) {
  const int h = position.y + g.ph - tap.y * plan.dh, w = position.x + g.pw - tap.x * plan.dw;
  if (h < 0 || w < 0) return 0;
  const int y = quotient(h, plan.sh), x = quotient(w, plan.sw);
  if (y * g.sh != h || x * g.sw != w) return 0;
  return image_at(dy, g.oc, g.oh, g.ow, position.n, c, y, x);
}

// The cell of group `group` at k, k + 1, ...; zeros outside.
Cell load_a(const int mode, const Images a, const Geometry g, const Plan plan, int group, int row,
            int k) {
  Value v[PACKED];
  if (mode == WEIGHT_GRADIENT) {
    const int positions = plan.positions.by;
    int n = quotient(k, plan.positions), at = k - n * positions;
    for (int j = 0; j < PACKED; ++j) {
      v[j] = n < g.n ? IMAGE_VALUE(a, (n * g.oc + group * plan.oc + row) * positions + at) : (Value)0;
      if (++at == positions) at = 0, ++n;
    }
    return cell_of(v);
  }
#ifndef FLOATS
  // A cell lies within a tap.
  if (mode == FORWARD && a.is_packed) {
    const Position position = position_of(row, plan);
    const Inner at = inner_of(k, plan);
    const int h = position.y * g.sh - g.ph + at.y * plan.dh;
    const int w = position.x * g.sw - g.pw + at.x * plan.dw;
    if (h < 0 || h >= g.h || w < 0 || w >= g.w) return 0;
    return IMAGE_CELL(a, g.c, g.h * g.w, position.n, group * plan.ic + at.c, h * g.w + w);
  }
#endif
  const int channels = mode == FORWARD ? plan.ic : plan.oc;
  if (plan.is_point) {
    const int positions = plan.positions.by, n = quotient(row, plan.positions);
    const int first =
        (n * (mode == FORWARD ? g.c : g.oc) + group * channels + k) * positions + row - n * positions;
    for (int j = 0; j < PACKED; ++j)
      v[j] = k + j < channels ? IMAGE_VALUE(a, first + j * positions) : (Value)0;
    return cell_of(v);
  }
  const int taps = g.kh * g.kw;
  const Position position = position_of(row, plan);
  Inner at = inner_of(k, plan);
  for (int j = 0; j < PACKED; ++j) {
    v[j] = 0;
    if (is_inside(at, channels, taps)) {
      v[j] = mode == FORWARD ? input_at(a, g, plan, group * channels + at.c, position, at)
                             : output_at(a, g, plan, group * channels + at.c, position, at);
    }
    advance(&at, plan);
  }
  return cell_of(v);
}

#ifdef IMAGE_WEIGHTS
#define RIGHT WEIGHTS
#define THE_RIGHT THE_WEIGHTS
#define RIGHT_WEIGHTS THE_WEIGHTS
#else
#define RIGHT const Images b
#define THE_RIGHT b
#if defined(FLOATS) && !defined(HALF_ACTIVATIONS)
#define RIGHT_WEIGHTS b
#else
#define RIGHT_WEIGHTS (__global const Value *)b.data
#endif
#endif

// Likewise of the weights, or of a weight-gradient's input.
Cell load_weights(const int mode, WEIGHTS, const Geometry g, const Plan plan, int group, int column,
                  int k) {
  const int ic = plan.ic, oc = plan.oc, taps = g.kh * g.kw;
  Value v[PACKED];
  if (mode == FORWARD) {
    const int row = (group * oc + column) * taps * ic;
#if defined(IMAGE_WEIGHTS) && !defined(FLOATS)
    // A cell of its own: one read in place of four.
    if ((first + row + k) % 4 == 0 && k + PACKED <= taps * ic) return word_of(weights, first + row + k);
#endif
#if !defined(IMAGE_WEIGHTS) && !defined(FLOATS)
    // Likewise, of filters that are made of whole cells.
    if (taps * ic % 4 == 0) return ((__global const Cell *)weights)[(row + k) / 4];
#endif
    for (int j = 0; j < PACKED; ++j)
      v[j] = k + j < taps * ic ? weight_of(THE_WEIGHTS, row + k + j) : (Value)0;
  } else {
    Inner at = inner_of(k, plan);
    for (int j = 0; j < PACKED; ++j) {
      v[j] = is_inside(at, oc, taps)
                 ? weight_of(THE_WEIGHTS, weight_at(group * oc + at.c, column, at.tap, ic, taps))
                 : (Value)0;
      advance(&at, plan);
    }
  }
  return cell_of(v);
}

Cell load_b(const int mode, RIGHT, const Geometry g, const Plan plan, int group, int column, int k) {
#ifndef IMAGE_WEIGHTS
  if (mode == WEIGHT_GRADIENT) {
    const Inner at = inner_of(column, plan);
    Position position = position_of(k, plan);
    Value v[PACKED];
    for (int j = 0; j < PACKED; ++j) {
      v[j] = position.n < g.n ? input_at(b, g, plan, group * plan.ic + at.c, position, at) : (Value)0;
      advance_position(&position, plan);
    }
    return cell_of(v);
  }
#endif
  return load_weights(mode, RIGHT_WEIGHTS, g, plan, group, column, k);
}

int place_of(const int mode, const Geometry g, const Plan plan, int group, int row, int column) {
  if (mode == WEIGHT_GRADIENT) return (group * plan.oc + row) * g.kh * g.kw * plan.ic + column;
  const int n = quotient(row, plan.positions), at = row - n * plan.positions.by;
  const int channel = mode == FORWARD ? n * g.oc + group * plan.oc : n * g.c + group * plan.ic;
  return (channel + column) * plan.positions.by + at;
}

// What follows a sum, in place: of slices nothing.
typedef struct {
#if defined(FLOATS)
  __global const float *bias;  // of its column, or null
  int adds;                    // to what is there
  int stored;                  // how it lies
#elif defined(CODES)
  __global const CodeRule *rule;
  __global const int *rows;  // of ROW_SUMS
  int flags;
  int is_packed;
#else
#define HAS_LARGEST
  __global uint *largest;  // gets the largest magnitude; or null
#endif
} After;

// A finished sum goes to y[at].
void finish_sum(__global Sum *y, ulong at, Sum sum, const After after, const Geometry g, int group,
                int row, int column, const Plan plan) {
  const int oc = group * plan.oc + column;
#if defined(FLOATS)
  const float value = sum + (after.bias != 0 ? after.bias[oc] : 0.0f);
  write_float(y, at, after.adds ? y[at] + value : value, after.stored);
#elif defined(CODES)
  long row_sum = 0;
  const int positions = plan.positions.by, n = quotient(row, plan.positions);
  const int position = row - n * positions;
  if (after.flags & ROW_SUMS) row_sum = after.rows[(n * g.groups + group) * positions + position];
  write_requantized((__global char *)y, place_of_code(after.is_packed, at, oc, positions, position),
                    sum, row_sum, after.rule, oc, after.flags);
#else
  y[at] = sum;
#endif
}

// Sums of a slice go to `sums` (slice s at s * elements).
void product(const int mode, const Images a, RIGHT, __global Sum *sums, const After after,
             const Geometry g, const Plan plan, __local Cell *tile_a,
             __local Cell *tile_b, __local uint *slot) {
  const int layer = get_group_id(2), group = quotient(layer, plan.of_slices);
  const int slice = layer - group * plan.slices;
  const int row0 = get_group_id(0) * ROWS, column0 = get_group_id(1) * COLUMNS;
  const int x = get_local_id(0), y = get_local_id(1);
  const int end = min(plan.depth, (slice + 1) * plan.slice_depth);
  Sum sum[TILE_ROWS][TILE_COLUMNS];
  for (int r = 0; r < TILE_ROWS; ++r) {
    for (int c = 0; c < TILE_COLUMNS; ++c) sum[r][c] = 0;
  }
  for (int k = slice * plan.slice_depth; k < end; k += PACKED * DEPTH) {
    for (int i = y * SIDE_X + x; i < ROWS * DEPTH; i += SIDE_X * SIDE_Y) {
      const int row = row0 + i % ROWS, at = k + PACKED * (i / ROWS);
      tile_a[i] = row < plan.rows && at < end ? load_a(mode, a, g, plan, group, row, at) : 0;
    }
    for (int i = y * SIDE_X + x; i < COLUMNS * DEPTH; i += SIDE_X * SIDE_Y) {
      const int column = column0 + i % COLUMNS, at = k + PACKED * (i / COLUMNS);
      tile_b[i] = column < plan.columns && at < end ? load_b(mode, THE_RIGHT, g, plan, group, column, at) : 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = 0; q < DEPTH; ++q) {
      Cell left[TILE_ROWS], right[TILE_COLUMNS];
      for (int r = 0; r < TILE_ROWS; r += VECTOR) {
        READ_CELLS(left + r, tile_a + q * ROWS + PLACE(r, x, SIDE_X));
      }
      for (int c = 0; c < TILE_COLUMNS; c += VECTOR) {
        READ_CELLS(right + c, tile_b + q * COLUMNS + PLACE(c, y, SIDE_Y));
      }
      for (int r = 0; r < TILE_ROWS; ++r) {
        for (int c = 0; c < TILE_COLUMNS; ++c) sum[r][c] = DOT(left[r], right[c], sum[r][c]);
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  uint most = 0;
  for (int r = 0; r < TILE_ROWS; ++r) {
    for (int c = 0; c < TILE_COLUMNS; ++c) {
      const int row = row0 + PLACE(r, x, SIDE_X), column = column0 + PLACE(c, y, SIDE_Y);
      if (row >= plan.rows || column >= plan.columns) continue;
      const ulong at = (ulong)slice * plan.elements + place_of(mode, g, plan, group, row, column);
      finish_sum(sums, at, sum[r][c], after, g, group, row, column, plan);
#ifdef HAS_LARGEST
      most = max(most, (uint)abs(sum[r][c]));
#endif
    }
  }
#ifdef HAS_LARGEST
  if (after.largest != 0) group_max(most, slot, after.largest);
#endif
}

#ifdef IMAGE_WEIGHTS
#define RIGHT_OPERAND WEIGHTS
#define RIGHT_DATA THE_WEIGHTS
#else
#define RIGHT_OPERAND TENSOR(b)
#define RIGHT_DATA IMAGES(b)
#endif

// Arguments behind the operands, and what follows the sums.
#if defined(FLOATS)
#define AFTER_ARGUMENTS TENSOR(y), TENSOR(bias), int has_bias, int adds
#define SET_AFTER(after)                               \
  after.bias = has_bias ? DATA(const float, bias) : 0; \
  after.adds = adds;                                   \
  after.stored = STORED(y);
#define AFTER_ALL
#elif defined(CODES)
#define AFTER_ARGUMENTS TENSOR(rule), TENSOR(rows), TENSOR(y), int flags
#define SET_AFTER(after)                  \
  after.rule = DATA(const CodeRule, rule); \
  after.rows = DATA(const int, rows);      \
  after.flags = flags;                    \
  after.is_packed = IS_PACKED(y);
#define AFTER_ALL FINISH_CODES(y);
#else
#define AFTER_ARGUMENTS TENSOR(y), int is_whole
#define SET_AFTER(after) after.largest = is_whole ? (__global uint *)&TAIL(y)->max_abs : 0;
#define AFTER_ALL
#endif

// The others have kernels of their own in files that follow this one.
#if !defined(DEPTHWISE) && !defined(WINOGRAD)
#define PRODUCT(name, mode)                                                                     \
  __kernel __attribute__((reqd_work_group_size(SIDE_X, SIDE_Y, 1))) void name(                  \
      TENSOR(a), RIGHT_OPERAND, AFTER_ARGUMENTS, Geometry g, Plan plan) {                       \
    __local Cell tile_a[ROWS * DEPTH], tile_b[COLUMNS * DEPTH];                                 \
    __local uint slot;                                                                          \
    After after;                                                                                \
    SET_AFTER(after)                                                                            \
    product(mode, IMAGES(a), RIGHT_DATA, DATA(Sum, y), after, g, plan, tile_a, tile_b, &slot); \
    AFTER_ALL                                                                                   \
  }
PRODUCT(product_forward, FORWARD)
#ifndef CODES
PRODUCT(product_input_gradient, INPUT_GRADIENT)
#ifndef IMAGE_WEIGHTS
PRODUCT(product_weight_gradient, WEIGHT_GRADIENT)
#endif
#endif
#endif

#if defined(FLOATS)
// Adds up the slices, in their order.
__kernel ELEMENTS void add_slices(__global const float *sums, Plan plan, TENSOR(y), int adds) {
  FOR_ITEMS(i, plan.elements) {
    float total = 0;
    for (int slice = 0; slice < plan.slices; ++slice) {
      total += sums[(ulong)slice * plan.elements + i];
    }
    WRITE(y, i, adds ? DATA(float, y)[i] + total : total);
  }
}
#elif !defined(CODES)
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
#endif
