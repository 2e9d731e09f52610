// Convolutions with one input channel a group, whose products have so few columns that most of a tile would be empty. The
// terms of a forward and of an input-gradient are added up in the order of the tiled product.

#ifdef DEPTHWISE
#ifdef FLOATS
#define MULTIPLY_ADD(a, b, sum) (sum) = DOT((a), (b), (sum))
#else
#define MULTIPLY_ADD(a, b, sum) (sum) += (a) * (b)
#endif

// A work-item has one sum; work-items of a group have neighbouring positions of one channel.
void depthwise(const Images a, __global const Value *weights, __global Sum *sums, const After after,
               const Geometry g, const Plan plan, __local uint *slot) {
  const int at = get_global_id(0), channel = get_global_id(1), n = get_global_id(2);
  uint most = 0;
  if (at < plan.positions.by) {
    const int group = quotient(channel, plan.of_channels), column = channel - group * plan.oc;
    const int y = quotient(at, plan.width), x = at - y * plan.width.by;
    const int h0 = y * g.sh - g.ph, w0 = x * g.sw - g.pw;
    const int taps = channel * g.kh * g.kw;
#ifdef FLOATS
    const int step = 1, plane = (n * g.c + group) * g.h * g.w;
#else
    const int step = a.is_packed ? 4 : 1;
    const int plane = place_of_code(a.is_packed, (n * g.c + group) * g.h * g.w, group, g.h * g.w, 0);
#endif
    Sum sum = 0;
    for (int ky = 0; ky < g.kh; ++ky) {
      const int h = h0 + ky * plan.dh;
      if (h < 0 || h >= g.h) continue;
      for (int kx = 0; kx < g.kw; ++kx) {
        const int w = w0 + kx * plan.dw;
        if (w < 0 || w >= g.w) continue;
        const Value input = IMAGE_VALUE(a, plane + (h * g.w + w) * step);
        const Value weight = weight_of(weights, taps + ky * g.kw + kx);
        MULTIPLY_ADD(input, weight, sum);
      }
    }
    const int row = n * plan.positions.by + at;
    finish_sum(sums, (n * g.oc + channel) * plan.positions.by + at, sum, after, g, group, row, column,
               plan);
#ifdef HAS_LARGEST
    most = (uint)abs(sum);
#endif
  }
#ifdef HAS_LARGEST
  if (after.largest != 0) group_max(most, slot, after.largest);
#endif
}

#ifndef CODES
// Likewise: a work-item adds up what one input gets of the outputs whose windows it lies in.
void depthwise_input(const Images dy, __global const Value *weights, __global Sum *sums, const After after,
                     const Geometry g, const Plan plan, __local uint *slot) {
  const int at = get_global_id(0), channel = get_global_id(1), n = get_global_id(2);
  uint most = 0;
  if (at < plan.positions.by) {
    const int y = quotient(at, plan.width), x = at - y * plan.width.by;
    Sum sum = 0;
    for (int column = 0; column < plan.oc; ++column) {
      const int oc = channel * plan.oc + column;
      const int plane = (n * g.oc + oc) * g.oh, taps = oc * g.kh * g.kw;
      for (int ky = 0; ky < g.kh; ++ky) {
        const int h = y + g.ph - ky * plan.dh, oh = quotient(max(h, 0), plan.sh);
        if (h < 0 || oh * g.sh != h || oh >= g.oh) continue;
        for (int kx = 0; kx < g.kw; ++kx) {
          const int w = x + g.pw - kx * plan.dw, ow = quotient(max(w, 0), plan.sw);
          if (w < 0 || ow * g.sw != w || ow >= g.ow) continue;
          const Value gradient = IMAGE_VALUE(dy, (plane + oh) * g.ow + ow);
          const Value weight = weight_of(weights, taps + ky * g.kw + kx);
          MULTIPLY_ADD(gradient, weight, sum);
        }
      }
    }
    finish_sum(sums, (n * g.c + channel) * plan.positions.by + at, sum, after, g, channel, 0, 0, plan);
#ifdef HAS_LARGEST
    most = (uint)abs(sum);
#endif
  }
#ifdef HAS_LARGEST
  if (after.largest != 0) group_max(most, slot, after.largest);
#endif
}

// A group adds up the positions of one slice for one output channel: its work-items each a part of them, and then their
// sums in pairs. So many taps at once: each gradient is read once for them.
#define TAPS 9
void depthwise_weight(const Images dy, const Images x, __global Sum *sums, const After after, const Geometry g,
                      const Plan plan, __local Sum *slots, __local uint *slot) {
  const int channel = quotient(get_group_id(0), plan.of_slices), slice = get_group_id(0) - channel * plan.slices;
  const int group = quotient(channel, plan.of_channels), taps = g.kh * g.kw, item = get_local_id(0);
  const int end = min(plan.depth, (slice + 1) * plan.slice_depth);
  uint most = 0;
  for (int first = 0; first < taps; first += TAPS) {
    int rows[TAPS], columns[TAPS];
    Sum sum[TAPS];
    for (int j = 0; j < TAPS; ++j) {
      const int tap = min(first + j, taps - 1), row = quotient(tap, plan.kw);
      rows[j] = row * plan.dh - g.ph;
      columns[j] = (tap - row * plan.kw.by) * plan.dw - g.pw;
      sum[j] = 0;
    }
    for (int k = slice * plan.slice_depth + item; k < end; k += GROUP) {
      const Position position = position_of(k, plan);
      const Value gradient = IMAGE_VALUE(dy, (position.n * g.oc + channel) * plan.positions.by + position.at);
      const int h0 = position.y * g.sh, w0 = position.x * g.sw;
      for (int j = 0; j < TAPS; ++j) {
        const Value input = image_at(x, g.c, g.h, g.w, position.n, group, h0 + rows[j], w0 + columns[j]);
        MULTIPLY_ADD(gradient, input, sum[j]);
      }
    }
    for (int j = 0; j < TAPS && first + j < taps; ++j) {
      slots[item] = sum[j];
      for (int size = GROUP / 2; size > 0; size /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < size) slots[item] += slots[item + size];
      }
      if (item == 0) {
        const ulong at = (ulong)slice * plan.elements + channel * taps + first + j;
        finish_sum(sums, at, slots[0], after, g, 0, 0, 0, plan);
#ifdef HAS_LARGEST
        most = max(most, (uint)abs(slots[0]));
#endif
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
  }
#ifdef HAS_LARGEST
  if (after.largest != 0) group_max(most, slot, after.largest);
#endif
}
#endif

__kernel ELEMENTS void depthwise_forward(TENSOR(a), TENSOR(b), AFTER_ARGUMENTS, Geometry g,
                                         Plan plan) {
  __local uint slot;
  After after;
  SET_AFTER(after)
  depthwise(IMAGES(a), DATA(const Value, b), DATA(Sum, y), after, g, plan, &slot);
  AFTER_ALL
}
#ifndef CODES
__kernel ELEMENTS void depthwise_input_gradient(TENSOR(a), TENSOR(b), AFTER_ARGUMENTS, Geometry g,
                                                Plan plan) {
  __local uint slot;
  After after;
  SET_AFTER(after)
  depthwise_input(IMAGES(a), DATA(const Value, b), DATA(Sum, y), after, g, plan, &slot);
  AFTER_ALL
}
__kernel ELEMENTS void depthwise_weight_gradient(TENSOR(a), TENSOR(b), AFTER_ARGUMENTS, Geometry g,
                                                 Plan plan) {
  __local Sum slots[GROUP];
  __local uint slot;
  After after;
  SET_AFTER(after)
  depthwise_weight(IMAGES(a), IMAGES(b), DATA(Sum, y), after, g, plan, slots, &slot);
  AFTER_ALL
}
#endif
#endif
