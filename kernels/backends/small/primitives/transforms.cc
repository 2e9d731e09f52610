#include "kernels/backends/small/primitives/transforms.h"

namespace runnel::small {
namespace {

// Distances between elements.
struct Steps {
  ptrdiff_t channel, row, column;
};
Steps StepsOf(const Plane& plane, Layout layout) {
  if (layout == Layout::kChw) return {plane.positions(), plane.w, 1};
  return {1, static_cast<ptrdiff_t>(plane.w) * plane.c, plane.c};
}

// Of a filter's element (tap, channel).
struct TermSteps {
  ptrdiff_t tap, channel;
};
TermSteps TermStepsOf(TermOrder order, int32_t channels, int32_t taps) {
  if (order == TermOrder::kTapsFirst) return {channels, 1};
  return {1, taps};
}

template <class Element>
void CopyStrided(const Element* from, ptrdiff_t from_step, Element* to, ptrdiff_t to_step,
                 int32_t count) {
  if (from_step == 1 && to_step == 1) {
    __builtin_memcpy(to, from, static_cast<size_t>(count) * sizeof(Element));
    return;
  }
  for (int32_t i = 0; i < count; ++i) to[i * to_step] = from[i * from_step];
}

template <class Element>
void FillZeros(Element* to, ptrdiff_t step, int32_t count) {
  for (int32_t i = 0; i < count; ++i) to[i * step] = Element{};
}

}  // namespace

template <class Element>
void Im2Row(const Sliding& s, const Element* from, Element* to) {
  const Steps steps = StepsOf(s.image, s.layout);
  const TermSteps terms = TermStepsOf(s.order, s.image.c, s.taps());
  for (int32_t h = 0; h < s.out_h; ++h) {
    for (int32_t w = 0; w < s.out_w; ++w, to += s.terms()) {
      for (int32_t i = 0; i < s.kh; ++i) {
        const int32_t y = Sliding::Source(h, s.step_h, i, s.pad_h, s.gap_h, s.image.h);
        for (int32_t j = 0; j < s.kw; ++j) {
          const int32_t x = Sliding::Source(w, s.step_w, j, s.pad_w, s.gap_w, s.image.w);
          Element* row = to + s.Tap(i, j) * terms.tap;
          if (y < 0 || x < 0) {
            FillZeros(row, terms.channel, s.image.c);
          } else {
            CopyStrided(from + y * steps.row + x * steps.column, steps.channel, row, terms.channel,
                        s.image.c);
          }
        }
      }
    }
  }
}

template <class Element>
void Im2Col(const Sliding& s, const Element* from, Element* to) {
  const Steps steps = StepsOf(s.image, s.layout);
  const TermSteps terms = TermStepsOf(s.order, s.image.c, s.taps());
  for (int32_t i = 0; i < s.kh; ++i) {
    for (int32_t j = 0; j < s.kw; ++j) {
      for (int32_t c = 0; c < s.image.c; ++c) {
        const Element* plane = from + c * steps.channel;
        Element* row = to + (s.Tap(i, j) * terms.tap + c * terms.channel) * s.positions();
        for (int32_t h = 0; h < s.out_h; ++h, row += s.out_w) {
          const int32_t y = Sliding::Source(h, s.step_h, i, s.pad_h, s.gap_h, s.image.h);
          if (y < 0) {
            FillZeros(row, 1, s.out_w);
            continue;
          }
          for (int32_t w = 0; w < s.out_w; ++w) {
            const int32_t x = Sliding::Source(w, s.step_w, j, s.pad_w, s.gap_w, s.image.w);
            row[w] = x < 0 ? Element{} : plane[y * steps.row + x * steps.column];
          }
        }
      }
    }
  }
}

template <class Element>
void Transpose(const Element* from, int32_t rows, int32_t columns, Element* to) {
  for (int32_t c = 0; c < columns; ++c) {
    for (int32_t r = 0; r < rows; ++r) *to++ = from[static_cast<ptrdiff_t>(r) * columns + c];
  }
}

template <class Element>
void BlockTranspose(const FilterBank& bank, const Element* from, bool keeps_taps, Element* to) {
  const TermSteps in_terms = TermStepsOf(bank.order, bank.in, bank.taps);
  const TermSteps out_terms = TermStepsOf(bank.order, bank.out, bank.taps);
  // Of a filter, and of one of its terms.
  const ptrdiff_t from_filter = bank.outs_inside ? 1 : bank.in * bank.taps;
  const ptrdiff_t from_term = bank.outs_inside ? bank.out : 1;
  const ptrdiff_t to_filter = bank.outs_inside ? 1 : bank.out * bank.taps;
  const ptrdiff_t to_term = bank.outs_inside ? bank.in : 1;
  for (int32_t i = 0; i < bank.in; ++i) {
    for (int32_t tap = 0; tap < bank.taps; ++tap) {
      const int32_t to_tap = keeps_taps ? tap : bank.taps - 1 - tap;
      CopyStrided(from + (tap * in_terms.tap + i * in_terms.channel) * from_term, from_filter,
                  to + i * to_filter + to_tap * out_terms.tap * to_term,
                  out_terms.channel * to_term, bank.out);
    }
  }
}

void CopyRows(const void* from, ptrdiff_t from_step_bytes, void* to, ptrdiff_t to_step_bytes,
              int32_t rows, int32_t bytes) {
  const auto* source = static_cast<const unsigned char*>(from);
  auto* target = static_cast<unsigned char*>(to);
  for (int32_t r = 0; r < rows; ++r) {
    __builtin_memcpy(target, source, static_cast<size_t>(bytes));
    source += from_step_bytes;
    target += to_step_bytes;
  }
}

#define RUNNEL_SMALL_TRANSFORMS(Element)                               \
  template void Im2Row(const Sliding&, const Element*, Element*);      \
  template void Im2Col(const Sliding&, const Element*, Element*);      \
  template void Transpose(const Element*, int32_t, int32_t, Element*); \
  template void BlockTranspose(const FilterBank&, const Element*, bool, Element*)
RUNNEL_SMALL_TRANSFORMS(float);
RUNNEL_SMALL_TRANSFORMS(F16);
RUNNEL_SMALL_TRANSFORMS(Bf16);
#undef RUNNEL_SMALL_TRANSFORMS

}  // namespace runnel::small
