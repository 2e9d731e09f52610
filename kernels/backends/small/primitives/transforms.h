#pragma once

// Shape transforms: they move elements, and compute nothing. Freestanding; `Element` is float, F16 or
// Bf16. Source and destination do not overlap.

#include <cstddef>
#include <cstdint>

#include "kernels/backends/small/primitives/numbers.h"

namespace runnel::small {

// Of a tensor of (channels, height, width).
enum class Layout : uint8_t { kChw, kHwc };

// Order of a filter's elements, which is the order of a convolution's terms.
enum class TermOrder : uint8_t {
  kChannelsFirst,  // (c, kh, kw): CHW's weights
  kTapsFirst,      // (kh, kw, c): HWC's weights
};

struct Plane {
  int32_t c = 0, h = 0, w = 0;
  int32_t positions() const { return h * w; }
  int32_t elements() const { return c * h * w; }
};

// A window that slides over an image, which may have zeros between its elements. Position (h, w),
// element (i, j) of the window reads (h * step_h + i - pad_h) / gap_h, and likewise w; what is no
// element reads 0. Forward: steps are strides, gaps 1. Input-gradient: steps 1, gaps are strides.
struct Sliding {
  Plane image;
  Layout layout = Layout::kHwc;
  TermOrder order = TermOrder::kTapsFirst;
  int32_t out_h = 0, out_w = 0;
  int32_t kh = 1, kw = 1;
  int32_t step_h = 1, step_w = 1;
  int32_t pad_h = 0, pad_w = 0;
  int32_t gap_h = 1, gap_w = 1;
  bool reversed = false;  // the window's elements in descending order

  int32_t taps() const { return kh * kw; }
  int32_t terms() const { return taps() * image.c; }
  int32_t positions() const { return out_h * out_w; }
  // Of an element of the window at position `at`; -1: 0.
  static int32_t Source(int32_t at, int32_t step, int32_t element, int32_t pad, int32_t gap,
                        int32_t size) {
    const int32_t place = at * step + element - pad;
    if (place < 0 || (gap > 1 && place % gap != 0)) return -1;
    const int32_t source = gap > 1 ? place / gap : place;
    return source < size ? source : -1;
  }
  int32_t Tap(int32_t i, int32_t j) const {
    const int32_t tap = i * kw + j;
    return reversed ? taps() - 1 - tap : tap;
  }
};

// to: positions x terms.
template <class Element>
void Im2Row(const Sliding& sliding, const Element* from, Element* to);
// to: terms x positions.
template <class Element>
void Im2Col(const Sliding& sliding, const Element* from, Element* to);

// to (columns x rows) = from (rows x columns).
template <class Element>
void Transpose(const Element* from, int32_t rows, int32_t columns, Element* to);

// Weights of `out` filters of `in` channels.
struct FilterBank {
  int32_t out = 0, in = 0, taps = 1;
  TermOrder order = TermOrder::kTapsFirst;
  bool outs_inside = false;  // stored as (terms x out), else as (out x terms)
};
// Block transpose: filters of `in` from weights, each over the channels `out`, their taps in reverse
// unless `keeps_taps`. Of (out x terms) becomes (in x terms), of (terms x out) (terms x in).
template <class Element>
void BlockTranspose(const FilterBank& bank, const Element* from, bool keeps_taps, Element* to);

// Rows of `bytes`, copied between memories: what a DMA of two dimensions does.
void CopyRows(const void* from, ptrdiff_t from_step_bytes, void* to, ptrdiff_t to_step_bytes,
              int32_t rows, int32_t bytes);

}  // namespace runnel::small
