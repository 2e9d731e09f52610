#include "kernels/backends/hexagon/dsp/product/product.h"

#include "kernels/backends/hexagon/dsp/product/panel_stores.h"

namespace runnel::hexagon {
namespace {

// Calls body(row, vector) for each; unrolled, so that the sums stay in registers.
template <int kRows, int kVectors, typename Body>
RUNNEL_INLINE void ForEachSum(const Body& body) {
#pragma clang loop unroll(full)
  for (int m = 0; m < kRows; ++m) {
#pragma clang loop unroll(full)
    for (int n = 0; n < kVectors; ++n) body(m, n);
  }
}

template <int kRows, int kVectors>
RUNNEL_INLINE void LoadSums(const TileTarget& target, int first_row, const int32_t* start,
                            Vector (&sums)[kRows][kVectors]) {
  if (target.takes) {
    const Vector* from = target.waiting + 4 * first_row;
    ForEachSum<kRows, kVectors>([&](int m, int n) { sums[m][n] = from[4 * m + n]; });
  } else if (target.adds) {
    const uint32_t row_elements = target.row_elements;
    const int32_t* c = target.c + target.first + first_row * row_elements + target.runs[0].at;
    ForEachSum<kRows, kVectors>([&](int m, int n) {
      sums[m][n] = Load(c + n * kVectorWords);
      if (n + 1 == kVectors) c += row_elements;
    });
  } else {
    ForEachSum<kRows, kVectors>([&](int m, int n) { sums[m][n] = Q6_V_vzero(); });
  }
  if (start == nullptr) return;
  ForEachSum<kRows, kVectors>(
      [&](int m, int n) { sums[m][n] = Q6_Vw_vadd_VwVw(sums[m][n], Splat(start[m])); });
}

template <int kRows>
RUNNEL_INLINE void LoadScalars(const int32_t* a, int32_t* words) {
  if constexpr (kRows % 2 == 0) {
    for (int m = 0; m < kRows; m += 2) {
      const uint64_t two = *reinterpret_cast<const uint64_t*>(a + m);
      words[m] = static_cast<int32_t>(two);
      words[m + 1] = static_cast<int32_t>(two >> 32);
    }
  } else {
    for (int m = 0; m < kRows; ++m) words[m] = a[m];
  }
}

template <int kVectors>
RUNNEL_INLINE Vector LargestOf(const Vector (&sums)[kVectors]) {
  Vector magnitudes[kVectors];
  for (int n = 0; n < kVectors; ++n) magnitudes[n] = Q6_Vw_vabs_Vw(sums[n]);
  if constexpr (kVectors == 1) return magnitudes[0];
  const Vector low = Q6_Vw_vmax_VwVw(magnitudes[0], magnitudes[1]);
  if constexpr (kVectors == 2) return low;
  return Q6_Vw_vmax_VwVw(low, Q6_Vw_vmax_VwVw(magnitudes[2], magnitudes[3]));
}

template <int kRows, int kVectors>
RUNNEL_INLINE void StoreDirect(const TileTarget& target, const Places& places, int first_row,
                               const Vector (&sums)[kRows][kVectors]) {
  // Values that a store could change, as far as the compiler knows, are read before the first
  // store.
  const uint32_t row_elements = target.row_elements;
  int32_t* const c = target.c + target.first + first_row * row_elements;
  int32_t* to[kVectors];
  for (int n = 0; n < kVectors; ++n) to[n] = c + places.at[n];
  MaxWords* const seen = target.largest;
  Vector largest = Q6_V_vzero();
  ForEachSum<kRows, kVectors>([&](int m, int n) {
    if (n == 0) largest = Q6_Vw_vmax_VwVw(largest, LargestOf<kVectors>(sums[m]));
    Store(to[n], sums[m][n]);
    to[n] += row_elements;
  });
  if (seen != nullptr) seen->See(largest);
}

// A tile's rows of one height, `panel_words` from panel to panel. The loop is as wide as the 32
// registers allow, 24 sums: 24 products need 12 packets, whose other slots hold the loads.
template <int kPanels, int kRows, int kVectors>
__attribute__((noinline)) void PanelTile(const int32_t* a, int panel_words, const int32_t* start,
                                         int steps, const Vector* b, const TileTarget& target,
                                         const Places& places, int first_row) {
  constexpr int kAll = kPanels * kRows;
  Vector sums[kAll][kVectors];
  LoadSums<kAll, kVectors>(target, first_row, start, sums);
#pragma clang loop unroll(disable)
  for (int step = 0; step < steps; ++step) {
    Vector lanes[kVectors];
    for (int n = 0; n < kVectors; ++n) lanes[n] = b[n];
    b += kVectors;
    int32_t words[kAll];
    for (int p = 0; p < kPanels; ++p) LoadScalars<kRows>(a + p * panel_words, words + p * kRows);
    a += kRows;
    for (int n = 0; n < kVectors; ++n) {
      for (int m = 0; m < kAll; ++m) {
        sums[m][n] = Q6_Vw_vrmpyacc_VwVubRb(sums[m][n], lanes[n], words[m]);
      }
    }
  }
  if (places.direct && !target.waits) return StoreDirect(target, places, first_row, sums);
  Vector buffer[kAll][4];
  Vector* to = target.waits ? target.waiting + 4 * first_row : buffer[0];
  ForEachSum<kAll, kVectors>([&](int m, int n) { to[4 * m + n] = sums[m][n]; });
  if (!target.waits) StorePanel(target, places, first_row, kAll, buffer[0]);
}

PackedRows RowsFrom(PackedRows a, int row) {
  a.words += row * a.steps;
  a.rows -= row;
  return a;
}

template <int kVectors>
void AllPanels(const PackedRows& a, int first, int count, bool starts, const Vector* b,
               const TileTarget& target) {
  const Places places = PlacesOf(target);
  // More than two at once would need more scalars than there are registers.
  constexpr int kPanels = Min(2, 4 / kVectors);
  for (int row = 0, rows = 0; row < a.rows; row += rows) {
    const int panel = PanelRows(a.rows - row);
    const int32_t* words = a.words + row * a.steps + first * panel;
    const int32_t* start = starts ? a.start + row : nullptr;
    const auto run = [&](auto tile, int tile_rows) {
      if (a.fetches && row + tile_rows < a.rows)
        FetchPanel(RowsFrom(a, row + tile_rows), first, count);
      tile(words, panel * a.steps, start, count, b, target, places, row);
      rows = tile_rows;
    };
    if (a.rows - row >= 6 * kPanels) {
      run(PanelTile<kPanels, 6, kVectors>, 6 * kPanels);
    } else if (panel == 6) {
      run(PanelTile<1, 6, kVectors>, 6);
    } else if (panel == 4) {
      run(PanelTile<1, 4, kVectors>, 4);
    } else if (panel == 2) {
      run(PanelTile<1, 2, kVectors>, 2);
    } else {
      run(PanelTile<1, 1, kVectors>, 1);
    }
  }
}

}  // namespace

bool TakeRows(Arena& arena, int rows, int depth, PackedRows& rows_of) {
  rows_of.rows = rows;
  rows_of.steps = (depth + 3) / 4;
  rows_of.words = arena.Take<int32_t>(uint64_t{static_cast<uint32_t>(rows)} * ((depth + 3) / 4));
  rows_of.start = arena.Take<int32_t>(rows);
  return rows_of.words != nullptr && rows_of.start != nullptr;
}

void FetchPanel(const PackedRows& a, int first, int count) {
  if (!a.fetches) return;
  const int rows = PanelRows(a.rows);
  FetchAhead(a.words + first * rows, Min(count, a.steps - first) * rows * 4);
}

void MultiplyTile(const PackedRows& a, int first, int count, bool starts, const Vector* b,
                  const TileTarget& target) {
  switch (TileVectors(target.lanes)) {
    case 4:
      return AllPanels<4>(a, first, count, starts, b, target);
    case 2:
      return AllPanels<2>(a, first, count, starts, b, target);
    default:
      return AllPanels<1>(a, first, count, starts, b, target);
  }
}

}  // namespace runnel::hexagon
