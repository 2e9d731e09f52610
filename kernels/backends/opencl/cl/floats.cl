// Instructions of FP32, without the products. kernels/backends/ref is their specification. Sums have a fixed
// order, so that a device always gives the same bytes.

// Whether the compiler joins a product and a sum would be its choice.
#pragma OPENCL FP_CONTRACT OFF

__kernel ELEMENTS void relu(TENSOR(x), TENSOR(y), uint count) {
  FOR_ITEMS(i, count) {
    const float x = READ(x, i);
    WRITE(y, i, x <= 0 ? 0 : x);
  }
}

__kernel ELEMENTS void relu6(TENSOR(x), TENSOR(y), uint count) {
  FOR_ITEMS(i, count) {
    const float x = READ(x, i);
    WRITE(y, i, x <= 0 ? 0 : x >= 6 ? 6 : x);
  }
}

__kernel ELEMENTS void relu_gradient(TENSOR(dy), TENSOR(y), TENSOR(dx), uint count) {
  FOR_ITEMS(i, count) {
    DATA(float, dx)[i] = READ(y, i) <= 0 ? 0 : DATA(const float, dy)[i];
  }
}

__kernel ELEMENTS void relu6_gradient(TENSOR(dy), TENSOR(y), TENSOR(dx), uint count) {
  FOR_ITEMS(i, count) {
    const float y = READ(y, i);
    DATA(float, dx)[i] = y <= 0 || y >= 6 ? 0 : DATA(const float, dy)[i];
  }
}

__kernel ELEMENTS void dropout(TENSOR(x), TENSOR(y), uint count, Rule rule, float scale) {
  FOR_QUADS(quad, count) {
    const uint4 draws = draws_of(rule, quad);
    FOR_LANES(lane, i, quad, count) {
      const bool kept = (lane_of(draws, lane) >> 8) >= rule.threshold;
      WRITE(y, i, kept ? READ(x, i) * scale : 0);
    }
  }
}

__kernel ELEMENTS void add(TENSOR(a), TENSOR(b), TENSOR(y), uint count) {
  FOR_ITEMS(i, count) WRITE(y, i, READ(a, i) + READ(b, i));
}

// Weights for products with HALF_WEIGHTS: to the nearest, ties to even; beyond 65504 infinite.
__kernel ELEMENTS void to_halves(TENSOR(x), __global half *y, uint count) {
  FOR_ITEMS(i, count) vstore_half_rte(DATA(const float, x)[i], i, y);
}

// y = x from element `begin` on, or y + x.
__kernel ELEMENTS void store_gradient(TENSOR(x), uint begin, TENSOR(y), uint count, int adds) {
  FOR_ITEMS(i, count) {
    const float x = DATA(const float, x)[begin + i];
    DATA(float, y)[i] = adds ? DATA(float, y)[i] + x : x;
  }
}

// Pools: one work-item an element that is written. A global average pool is one whose window is the
// plane.

// The first maximum, of which a NaN is one.
__kernel ELEMENTS void max_pool(TENSOR(x), TENSOR(y), __global uchar *taps_area, ulong2 taps_at,
                                int has_taps, Geometry g) {
  FOR_ITEMS(o, g.n * g.c * g.oh * g.ow) {
    const int plane = o / (g.oh * g.ow), at = o % (g.oh * g.ow);
    const int first_h = at / g.ow * g.sh - g.ph, first_w = at % g.ow * g.sw - g.pw;
    int best = -1;
    float best_value = 0;
    for (int tap = 0; tap < g.kh * g.kw; ++tap) {
      const int h = first_h + tap / g.kw, w = first_w + tap % g.kw;
      if (h < 0 || h >= g.h || w < 0 || w >= g.w) continue;
      const float value = READ(x, (plane * g.h + h) * g.w + w);
      if (best >= 0 && !(value > best_value) && !isnan(value)) continue;
      best = tap;
      best_value = value;
      if (isnan(value)) break;
    }
    WRITE(y, o, best_value);
    if (has_taps) DATA(uchar, taps)[o] = (uchar)best;
  }
}

// Calls for the outputs whose windows an input lies in: `o` is the output, `tap` its tap.
#define FOR_WINDOWS(g, plane, h, w, o, tap)                                                        \
  for (int tap = 0, o = -1; tap < (g).kh * (g).kw; ++tap)                                          \
    if ((o = output_of((g), (plane), (h) - tap / (g).kw, (w) - tap % (g).kw)) >= 0)

// Of the window that begins at (h, w), padding counted; -1: there is none.
int output_of(const Geometry g, int plane, int h, int w) {
  if (h < 0 || w < 0 || h % g.sh != 0 || w % g.sw != 0) return -1;
  const int oh = h / g.sh, ow = w / g.sw;
  return oh < g.oh && ow < g.ow ? (plane * g.oh + oh) * g.ow + ow : -1;
}

__kernel ELEMENTS void max_pool_gradient(TENSOR(dy), TENSOR(taps), TENSOR(dx), Geometry g) {
  FOR_ITEMS(i, g.n * g.c * g.h * g.w) {
    const int plane = i / (g.h * g.w), at = i % (g.h * g.w);
    float sum = 0;
    FOR_WINDOWS(g, plane, at / g.w + g.ph, at % g.w + g.pw, o, tap) {
      if (DATA(const uchar, taps)[o] == tap) sum += DATA(const float, dy)[o];
    }
    DATA(float, dx)[i] = sum;
  }
}

__kernel ELEMENTS void avg_pool(TENSOR(x), TENSOR(y), Geometry g) {
  FOR_ITEMS(o, g.n * g.c * g.oh * g.ow) {
    const int plane = o / (g.oh * g.ow), at = o % (g.oh * g.ow);
    const int first = (plane * g.h + at / g.ow * g.sh) * g.w + at % g.ow * g.sw;
    float sum = 0;
    for (int kh = 0; kh < g.kh; ++kh) {
      for (int kw = 0; kw < g.kw; ++kw) sum += READ(x, first + kh * g.w + kw);
    }
    WRITE(y, o, sum / (float)(g.kh * g.kw));
  }
}

__kernel ELEMENTS void avg_pool_gradient(TENSOR(dy), TENSOR(dx), Geometry g) {
  FOR_ITEMS(i, g.n * g.c * g.h * g.w) {
    const int plane = i / (g.h * g.w), at = i % (g.h * g.w);
    float sum = 0;
    // Windows that do not overlap, as a global one: one look instead of one a tap.
    if (g.sh >= g.kh && g.sw >= g.kw) {
      const int h = at / g.w, w = at % g.w;
      const bool inside = h % g.sh < g.kh && w % g.sw < g.kw;
      const int o = inside ? output_of(g, plane, h - h % g.sh, w - w % g.sw) : -1;
      if (o >= 0) sum = DATA(const float, dy)[o];
    } else {
      FOR_WINDOWS(g, plane, at / g.w, at % g.w, o, tap) sum += DATA(const float, dy)[o];
    }
    DATA(float, dx)[i] = sum / (float)(g.kh * g.kw);
  }
}

// Sums over a channel: one work-group each, whose items sum every GROUP-th value with the error of
// each addition carried on (Kahan), then add theirs up as a tree.

typedef struct {
  float sum, error;
} Carried;

void carry(Carried *total, float value) {
  const float corrected = value - total->error;
  const float next = total->sum + corrected;
  total->error = (next - total->sum) - corrected;
  total->sum = next;
}

// Of all items, for all items.
float sum_of_group(float value, __local float *slots) {
  const uint at = get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
  slots[at] = value;
  for (uint half_size = GROUP / 2; half_size > 0; half_size /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (at < half_size) slots[at] += slots[at + half_size];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  return slots[0];
}

// (N, C, ...) seen as n x channels runs of `inner` elements.
typedef struct {
  int n, channels, inner;
} Channels;

// Elements `i` of the group's channel, this item's share.
#define FOR_CHANNEL(i, c, s)                                                                       \
  for (int k_ = get_local_id(0), i = 0; k_ < (s).n * (s).inner; k_ += GROUP)                       \
    if ((i = (k_ / (s).inner * (s).channels + (c)) * (s).inner + k_ % (s).inner), true)

__kernel ELEMENTS void batch_norm_forward(TENSOR(x), TENSOR(scale), TENSOR(shift), TENSOR(y),
                                          TENSOR(stats), TENSOR(running_mean),
                                          TENSOR(running_var), Channels s,
                                          float epsilon, float momentum) {
  __local float slots[GROUP];
  const int c = get_group_id(0);
  const float count = (float)(s.n * s.inner);
  Carried sum = {0, 0}, squares = {0, 0};
  FOR_CHANNEL(i, c, s) carry(&sum, READ(x, i));
  const float mean = sum_of_group(sum.sum, slots) / count;
  FOR_CHANNEL(i, c, s) {
    const float difference = READ(x, i) - mean;
    carry(&squares, difference * difference);
  }
  const float all_squares = sum_of_group(squares.sum, slots);
  const float variance = all_squares / count;
  const float inv_std = 1 / sqrt(variance + epsilon);
  const float scale = DATA(const float, scale)[c], shift = DATA(const float, shift)[c];
  FOR_CHANNEL(i, c, s) {
    WRITE(y, i, (READ(x, i) - mean) * inv_std * scale + shift);
  }
  if (get_local_id(0) != 0) return;
  DATA(float, stats)[c] = mean;
  DATA(float, stats)[s.channels + c] = inv_std;
  const float unbiased = s.n * s.inner > 1 ? all_squares / (count - 1) : variance;
  __global float *running_mean = DATA(float, running_mean) + c;
  __global float *running_var = DATA(float, running_var) + c;
  *running_mean = (1 - momentum) * *running_mean + momentum * mean;
  *running_var = (1 - momentum) * *running_var + momentum * unbiased;
}

// has_stats: `mean` is stats, means and then 1 / std, of which `var` is the same tensor; else var is
// the variance.
__kernel ELEMENTS void batch_norm_apply(TENSOR(x), TENSOR(scale), TENSOR(shift), TENSOR(mean),
                                        TENSOR(var), int has_stats, TENSOR(y), Channels s, float epsilon) {
  FOR_ITEMS(i, s.n * s.channels * s.inner) {
    const int c = i / s.inner % s.channels;
    const float mean = DATA(const float, mean)[c];
    const float inv_std = has_stats ? DATA(const float, var)[s.channels + c]
                                    : 1 / sqrt(DATA(const float, var)[c] + epsilon);
    WRITE(y, i, (READ(x, i) - mean) * inv_std * DATA(const float, scale)[c] +
                    DATA(const float, shift)[c]);
  }
}

__kernel ELEMENTS void batch_norm_gradient(TENSOR(dy), TENSOR(x), TENSOR(scale), TENSOR(stats),
                                           TENSOR(dx), TENSOR(sums), Channels s) {
  __local float slots[GROUP];
  const int c = get_group_id(0);
  __global const float *dy = DATA(const float, dy);
  const float mean = DATA(const float, stats)[c];
  const float inv_std = DATA(const float, stats)[s.channels + c];
  Carried scales = {0, 0}, shifts = {0, 0};
  FOR_CHANNEL(i, c, s) {
    carry(&shifts, dy[i]);
    carry(&scales, dy[i] * ((READ(x, i) - mean) * inv_std));
  }
  const float dscale = sum_of_group(scales.sum, slots);
  const float dshift = sum_of_group(shifts.sum, slots);
  const float count = (float)(s.n * s.inner), factor = DATA(const float, scale)[c] * inv_std;
  FOR_CHANNEL(i, c, s) {
    const float u = (READ(x, i) - mean) * inv_std;
    DATA(float, dx)[i] = factor * (dy[i] - dshift / count - u * (dscale / count));
  }
  if (get_local_id(0) != 0) return;
  DATA(float, sums)[c] = dscale;
  DATA(float, sums)[s.channels + c] = dshift;
}

__kernel ELEMENTS void bias_gradient(TENSOR(dy), TENSOR(bias), Channels s,
                                     int adds) {
  __local float slots[GROUP];
  const int c = get_group_id(0);
  Carried sum = {0, 0};
  FOR_CHANNEL(i, c, s) carry(&sum, DATA(const float, dy)[i]);
  const float total = sum_of_group(sum.sum, slots);
  if (get_local_id(0) != 0) return;
  __global float *bias = DATA(float, bias) + c;
  *bias = adds ? *bias + total : total;
}

// One work-item a sample.
__kernel ELEMENTS void loss_gradient(TENSOR(logits), TENSOR(labels), TENSOR(y), int samples,
                                     int classes, float step_labels, float at_label,
                                     float at_each) {
  FOR_ITEMS(n, samples) {
    __global const float *row = DATA(const float, logits) + n * classes;
    __global float *gradient = DATA(float, y) + n * classes;
    const int label = DATA(const int, labels)[n];
    // As UnpackLabel of proto/base/training/mixed_label.h.
    const uint bits = (uint)~label;
    const int first = label < 0 ? (int)(bits & 2047u) : label;
    const int second = label < 0 ? (int)(bits >> 11 & 2047u) : label;
    const float share = label < 0 ? (float)(bits >> 22) / 512.0f : 1.0f;
    float most = row[0];
    for (int j = 1; j < classes; ++j) most = row[j] > most ? row[j] : most;
    Carried sum = {0, 0};
    for (int j = 0; j < classes; ++j) carry(&sum, exp(row[j] - most));
    for (int j = 0; j < classes; ++j) {
      const float probability = exp(row[j] - most) / sum.sum;
      const float target = at_each + (j == first ? at_label * share : 0.0f) +
                           (j == second ? at_label * (1.0f - share) : 0.0f);
      gradient[j] = (probability - target) / step_labels;
    }
  }
}

// The kernels of the optimizers, whose texts stand behind this one (kernels/ir/optimizers): IdUpdate
// takes IdStep for each element, with so many slots.
typedef struct {
  float values[12];
  float gradient_factor;
} OptimizerScalars;
#define UPDATE_WITH_1_SLOT(Id)                                                            \
  __kernel ELEMENTS void Id##Update(TENSOR(weight), TENSOR(gradient), TENSOR(a), TENSOR(y), \
                                    uint count, OptimizerScalars s) {                     \
    FOR_ITEMS(i, count) {                                                                 \
      float slots[1] = {DATA(float, a)[i]};                                               \
      DATA(float, y)                                                                      \
      [i] = Id##Step(DATA(const float, weight)[i],                                        \
                     DATA(const float, gradient)[i] * s.gradient_factor, slots, s.values); \
      DATA(float, a)[i] = slots[0];                                                       \
    }                                                                                     \
  }
#define UPDATE_WITH_2_SLOTS(Id)                                                           \
  __kernel ELEMENTS void Id##Update(TENSOR(weight), TENSOR(gradient), TENSOR(a), TENSOR(b), \
                                    TENSOR(y), uint count, OptimizerScalars s) {          \
    FOR_ITEMS(i, count) {                                                                 \
      float slots[2] = {DATA(float, a)[i], DATA(float, b)[i]};                            \
      DATA(float, y)                                                                      \
      [i] = Id##Step(DATA(const float, weight)[i],                                        \
                     DATA(const float, gradient)[i] * s.gradient_factor, slots, s.values); \
      DATA(float, a)[i] = slots[0];                                                       \
      DATA(float, b)[i] = slots[1];                                                       \
    }                                                                                     \
  }
