#pragma once

// Tensors of a program as the products see them, and copies between them and L1.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/backends/host/call.h"
#include "kernels/backends/small/tiles.h"
#include "kernels/ir/arithmetic/half_products.h"
#include "proto/base/tensor/small_float.h"

namespace runnel::small {

// Elements of (sample, channel, row, column).
template <class T>
struct View {
  T* data = nullptr;
  int64_t n = 0, c = 0, h = 0, w = 0;  // distances
  T& At(int64_t sample, int64_t channel, int64_t row, int64_t column) const {
    return data[sample * n + channel * c + row * h + column * w];
  }
};

// A part of one sample. `channels_of` channels in all; halves have them in pairs, the second first.
struct Box {
  int64_t sample = 0;
  int32_t c0 = 0, c1 = 0, h0 = 0, h1 = 0, w0 = 0, w1 = 0;
  int32_t channels_of = 0;
  bool in_pairs = false;

  Plane plane() const { return {c1 - c0, h1 - h0, w1 - w0}; }
  int32_t Channel(int32_t place) const {
    return in_pairs ? static_cast<int32_t>(InPairs(place, channels_of)) : place;
  }
};

template <class T>
void CopyIn(const View<const T>& from, const Box& box, Layout layout, T* to) {
  const Plane plane = box.plane();
  for (int32_t c = box.c0; c < box.c1; ++c) {
    const int32_t channel = box.Channel(c);
    for (int32_t h = box.h0; h < box.h1; ++h) {
      const T* row = &from.At(box.sample, channel, h, box.w0);
      if (layout == Layout::kChw) {
        T* place = to + ((c - box.c0) * plane.h + h - box.h0) * plane.w;
        if (from.w == 1) {
          CopyRows(row, 0, place, 0, 1, plane.w * static_cast<int32_t>(sizeof(T)));
          continue;
        }
        for (int32_t w = 0; w < plane.w; ++w) place[w] = row[w * from.w];
      } else {
        T* place = to + (h - box.h0) * plane.w * plane.c + c - box.c0;
        for (int32_t w = 0; w < plane.w; ++w) place[w * plane.c] = row[w * from.w];
      }
    }
  }
}

// The nearest value of the type; of f16 the largest for what is beyond. By integers: subnormal
// numbers count, whatever the processor does with them.
inline void Hold(float value, float* to) { *to = value; }
inline void Hold(float value, Bf16* to) {
  to->code = static_cast<uint16_t>(FromFloat<kBFloat16Format>(value));
}
inline float InRange(float value) {
  constexpr float kLargest = 65504;
  return std::clamp(value, -kLargest, kLargest);
}
inline void Hold(float value, F16* to) {
  to->code = static_cast<uint16_t>(FromFloat<kHalfFormat>(InRange(value)));
}
// What f16 does not hold.
template <class T>
void Count(float value, RangeCounts* counts) {
  if (!std::is_same_v<T, F16>) return;
  counts->saturated += std::fabs(value) > 65504;
  counts->underflows += value != 0 && std::fabs(value) <= kHalfUnderflow;
}

// Sums into a tensor; a sum of -0 becomes 0.
template <class T, class Sum>
void CopyOut(const Sum* from, const Box& box, Layout layout, const View<T>& to,
             RangeCounts* counts) {
  const Plane plane = box.plane();
  for (int32_t c = 0; c < plane.c; ++c) {
    for (int32_t h = 0; h < plane.h; ++h) {
      for (int32_t w = 0; w < plane.w; ++w) {
        const int32_t place = layout == Layout::kChw ? (c * plane.h + h) * plane.w + w
                                                     : (h * plane.w + w) * plane.c + c;
        const float sum = ValueOf(from[place]) + 0.0f;
        Count<T>(sum, counts);
        Hold(sum, &to.At(box.sample, box.c0 + c, box.h0 + h, box.w0 + w));
      }
    }
  }
}

// Filters (out x in x taps) of FP32, of one group.
struct Filters {
  float* data = nullptr;
  int32_t out = 0, in = 0, taps = 1;
  float& At(int32_t o, int32_t i, int32_t tap) const {
    return data[(static_cast<int64_t>(o) * in + i) * taps + tap];
  }
};
// A part of them: places of channels [o0, o1), [i0, i1), taps [t0, t1).
struct FilterBox {
  int32_t o0 = 0, o1 = 0, i0 = 0, i1 = 0, t0 = 0, t1 = 1;
  bool outs_in_pairs = false, ins_in_pairs = false;
  int32_t outs() const { return o1 - o0; }
  int32_t terms() const { return (i1 - i0) * (t1 - t0); }
};
// Terms by (tap, channel), as (outs x terms) or (terms x outs).
template <class T>
void CopyFilters(const Filters& from, const FilterBox& box, bool outs_inside, T* to) {
  if (std::is_same_v<T, float> && !outs_inside && from.taps == 1) {  // lies as it is wanted
    const auto row_bytes = static_cast<int32_t>(box.terms() * sizeof(float));
    CopyRows(&from.At(box.o0, box.i0, 0), from.in * ptrdiff_t{sizeof(float)}, to, row_bytes,
             box.outs(), row_bytes);
    return;
  }
  for (int32_t o = box.o0; o < box.o1; ++o) {
    const auto out = static_cast<int32_t>(box.outs_in_pairs ? InPairs(o, from.out) : o);
    for (int32_t i = box.i0; i < box.i1; ++i) {
      const auto in = static_cast<int32_t>(box.ins_in_pairs ? InPairs(i, from.in) : i);
      for (int32_t tap = box.t0; tap < box.t1; ++tap) {
        const int32_t term = (tap - box.t0) * (box.i1 - box.i0) + i - box.i0;
        const int32_t place =
            outs_inside ? term * box.outs() + o - box.o0 : (o - box.o0) * box.terms() + term;
        Hold(from.At(out, in, tap), to + place);
      }
    }
  }
}

}  // namespace runnel::small
