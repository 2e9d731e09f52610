// Pools: one work-item an output element. A global average pool is one whose window is the plane.

__kernel ELEMENTS void max_pool(TENSOR(x), TENSOR(y), __global uchar *taps_area, ulong2 taps_at,
                                int has_taps, Geometry g) {
  FOR_ITEMS(o, g.n * g.c * g.oh * g.ow) {
    const int plane = o / (g.oh * g.ow), at = o % (g.oh * g.ow);
    const int first_h = at / g.ow * g.sh - g.ph, first_w = at % g.ow * g.sw - g.pw;
    // Packed channels fill their cells: a plane's number tells its lane.
    const int step = IS_PACKED(x) ? 4 : 1;
    __global const char *x =
        DATA(const char, x) + place_of_code(IS_PACKED(x), plane * g.h * g.w, plane, g.h * g.w, 0);
    int best = -1, best_value = 0;
    for (int kh = 0; kh < g.kh; ++kh) {
      for (int kw = 0; kw < g.kw; ++kw) {
        const int h = first_h + kh, w = first_w + kw;
        if (h < 0 || h >= g.h || w < 0 || w >= g.w) continue;
        const int value = x[(h * g.w + w) * step];
        if (best >= 0 && value <= best_value) continue;
        best = kh * g.kw + kw;
        best_value = value;
      }
    }
    DATA(char, y)[place_of_code(IS_PACKED(y), o, plane, g.oh * g.ow, at)] = (char)best_value;
    if (has_taps) DATA(uchar, taps)[o] = (uchar)best;
  }
  if (get_global_id(0) == 0) write_tail(TAIL(y), TAIL(x)->exponent, 0);
}

// Each input gathers from the windows that it lies in.
__kernel ELEMENTS void max_pool_gradient(TENSOR(dy), TENSOR(taps), TENSOR(dx), Geometry g) {
  FOR_ITEMS(i, g.n * g.c * g.h * g.w) {
    const int plane = i / (g.h * g.w), at = i % (g.h * g.w);
    const int h = at / g.w + g.ph, w = at % g.w + g.pw;
    int sum = 0;
    for (int kh = 0; kh < g.kh && kh <= h; ++kh) {
      const int oh = (h - kh) / g.sh;
      if ((h - kh) % g.sh != 0 || oh >= g.oh) continue;
      for (int kw = 0; kw < g.kw && kw <= w; ++kw) {
        const int ow = (w - kw) / g.sw;
        if ((w - kw) % g.sw != 0 || ow >= g.ow) continue;
        const int o = (plane * g.oh + oh) * g.ow + ow;
        if (DATA(const uchar, taps)[o] == kh * g.kw + kw) sum += DATA(const char, dy)[o];
      }
    }
    DATA(char, dx)[i] = saturate_mantissa(sum);
  }
  if (get_global_id(0) == 0) write_tail(TAIL(dx), TAIL(dy)->exponent, 0);
}

// The tail of a sum of products or of taps: the largest sum is found afterwards.
__kernel void begin_sum(TENSOR(y), TENSOR(a), TENSOR(b), int has_b, int added_exponent) {
  const int exponent = TAIL(a)->exponent + (has_b ? TAIL(b)->exponent : 0);
  write_tail(TAIL(y), exponent + added_exponent, 0);
}

__kernel ELEMENTS void avg_pool(TENSOR(x), TENSOR(y), Geometry g) {
  __local uint slot;
  uint most = 0;
  FOR_ITEMS(o, g.n * g.c * g.oh * g.ow) {
    const int plane = o / (g.oh * g.ow), at = o % (g.oh * g.ow);
    const int corner = at / g.ow * g.sh * g.w + at % g.ow * g.sw, step = IS_PACKED(x) ? 4 : 1;
    __global const char *x =
        DATA(const char, x) +
        place_of_code(IS_PACKED(x), plane * g.h * g.w + corner, plane, g.h * g.w, corner);
    int sum = 0;
    for (int kh = 0; kh < g.kh; ++kh) {
      for (int kw = 0; kw < g.kw; ++kw) sum += x[(kh * g.w + kw) * step];
    }
    DATA(int, y)[o] = sum;
    most = max(most, (uint)abs(sum));
  }
  group_max(most, &slot, (__global uint *)&TAIL(y)->max_abs);
}

// Windows do not overlap; what lies in none gets 0.
__kernel ELEMENTS void avg_pool_gradient(TENSOR(dy), TENSOR(dx), Geometry g, int added_exponent) {
  FOR_ITEMS(i, g.n * g.c * g.h * g.w) {
    const int plane = i / (g.h * g.w), at = i % (g.h * g.w);
    const int h = at / g.w, w = at % g.w;
    const int oh = h / g.sh, ow = w / g.sw;
    const bool inside = oh < g.oh && ow < g.ow && h % g.sh < g.kh && w % g.sw < g.kw;
    DATA(char, dx)[i] = inside ? DATA(const char, dy)[(plane * g.oh + oh) * g.ow + ow] : (char)0;
  }
  if (get_global_id(0) == 0) write_tail(TAIL(dx), TAIL(dy)->exponent + added_exponent, 0);
}
