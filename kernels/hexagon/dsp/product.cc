#include "kernels/hexagon/dsp/product.h"

namespace runnel::hexagon {
namespace {

// Where a tile's vectors go, if each is whole and goes to one place.
struct VectorPlaces {
  bool whole = false;
  uint32_t at[4] = {};
};

VectorPlaces PlacesOf(const TileTarget& target) {
  VectorPlaces places;
  for (int i = 0; i < target.run_count; ++i) {
    const LaneRun& run = target.runs[i];
    if (run.count % kVectorWords != 0) return places;
    for (int at = 0; at < run.count; at += kVectorWords) {
      places.at[(run.lane + at) / kVectorWords] = run.at + at;
    }
  }
  places.whole = target.lanes == TileVectors(target.lanes) * kVectorWords;
  return places;
}

template <int kVectors>
RUNNEL_INLINE void LoadSums(const TileTarget& target, int m, Vector (&sums)[kVectors]) {
  if (target.takes) {
    for (int n = 0; n < kVectors; ++n) sums[n] = target.waiting[4 * m + n];
  } else if (target.adds) {
    const int32_t* c = target.c + target.first + m * target.row_elements;
    for (int n = 0; n < kVectors; ++n) sums[n] = Load(c + target.runs[0].at + n * kVectorWords);
  } else {
    for (int n = 0; n < kVectors; ++n) sums[n] = Q6_V_vzero();
  }
}

// One row of the tile as bytes.
RUNNEL_INLINE void StoreRow(const TileTarget& target, int m, Vector value) {
  const RoundedSums& to = *target.rounded;
  const uint32_t first = target.first + m * target.row_elements;
  alignas(kVectorBytes) int8_t row[2 * kVectorBytes];
  if (target.run_count > 1) *reinterpret_cast<Vector*>(row) = value;
  for (int i = 0; i < target.run_count; ++i) {
    const LaneRun& run = target.runs[i];
    Vector piece = run.lane == 0 ? value : Load(row + run.lane);
    if (to.mask != nullptr) {
      const Predicate keeps = Q6_Q_vcmp_gt_VbVb(Load(to.mask + first + run.at), Q6_V_vzero());
      piece = Q6_V_vmux_QVV(keeps, piece, Q6_V_vzero());
    }
    StoreBytes(to.y + first + run.at, piece, run.count);
  }
}

// round(sums, |sums|) gives what is left of a vector of them.
template <int kRows, int kVectors, typename Round>
RUNNEL_INLINE void RoundPanel(const TileTarget& target, bool whole, int first_row,
                              const Vector (&sums)[kRows][kVectors], const Round& round) {
  RoundedSums& to = *target.rounded;
  const Vector limit = Splat(128 << to.shift);
  const Vector least = to.relu ? Q6_V_vzero() : SplatBytes(-127);
  const bool at_once = target.runs[0].count == kTileLanes && to.mask == nullptr;
  Vector saturated = to.saturated, largest = Q6_V_vzero();
  for (int m = 0; m < kRows; ++m) {
    Words words = {{Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero(), Q6_V_vzero()}};
    for (int n = 0; n < kVectors; ++n) {
      const Vector sum =
          whole ? sums[m][n] : KeepBytes(sums[m][n], (target.lanes - n * kVectorWords) * 4);
      const Vector magnitude = Q6_Vw_vabs_Vw(sum);
      largest = Q6_Vw_vmax_VwVw(largest, magnitude);
      saturated = Q6_Vw_condacc_QVwVw(Q6_Q_vcmp_gt_VwVw(magnitude, limit), saturated, Splat(1));
      words.v[n] = round(sum, magnitude);
    }
    const Vector value = Q6_Vb_vmax_VbVb(MantissasOf(words), least);
    if (at_once) {
      Store(to.y + target.first + (first_row + m) * target.row_elements + target.runs[0].at, value);
    } else {
      StoreRow(target, first_row + m, value);
    }
  }
  to.saturated = saturated;
  if (target.largest != nullptr) target.largest->See(largest);
}

template <int kRows, int kVectors>
RUNNEL_INLINE void StoreRounded(const TileTarget& target, bool whole, int first_row,
                                const Vector (&sums)[kRows][kVectors]) {
  const RoundedSums& to = *target.rounded;
  if (to.pseudo) {
    RoundPanel(target, whole, first_row, sums, PseudoRounding(to.shift));
  } else if (to.shift == 0) {
    RoundPanel(target, whole, first_row, sums, [](Vector words, Vector) { return words; });
  } else {
    const VectorRounding round(kRoundHalfAway, to.shift);
    RoundPanel(target, whole, first_row, sums, [&](Vector words, Vector) { return round(words); });
  }
}

// Gives the largest |sum| of each lane so far.
template <int kVectors>
RUNNEL_INLINE Vector StoreSums(const TileTarget& target, const VectorPlaces& places, int m,
                               const Vector (&sums)[kVectors], Vector largest) {
  if (target.waits) {
    for (int n = 0; n < kVectors; ++n) target.waiting[4 * m + n] = sums[n];
    return largest;
  }
  int32_t* c = target.c + target.first + m * target.row_elements;
  if (places.whole) {
    for (int n = 0; n < kVectors; ++n) {
      Store(c + places.at[n], sums[n]);
      largest = Q6_Vw_vmax_VwVw(largest, Q6_Vw_vabs_Vw(sums[n]));
    }
    return largest;
  }
  alignas(kVectorBytes) int32_t row[kTileLanes + kVectorWords];
  for (int n = 0; n < kVectors; ++n) {
    const Vector kept = KeepBytes(sums[n], (target.lanes - n * kVectorWords) * 4);
    largest = Q6_Vw_vmax_VwVw(largest, Q6_Vw_vabs_Vw(kept));
    reinterpret_cast<Vector*>(row)[n] = sums[n];
  }
  for (int i = 0; i < target.run_count; ++i) {
    const LaneRun& run = target.runs[i];
    for (int at = 0; at < run.count; at += kVectorWords) {
      StoreBytes(c + run.at + at, Load(row + run.lane + at), (run.count - at) * 4);
    }
  }
  return largest;
}

// One panel. The loop is as wide as the 32 registers allow, 6 x 4: 24 products need 12 packets,
// whose other slots hold the 4 vector loads and 3 loads of scalars.
template <int kRows, int kVectors>
__attribute__((noinline)) void PanelTile(const int32_t* a, const int32_t* start, int steps,
                                         const Vector* b, const TileTarget& target,
                                         const VectorPlaces& places, int first_row) {
  Vector sums[kRows][kVectors];
  for (int m = 0; m < kRows; ++m) {
    LoadSums<kVectors>(target, first_row + m, sums[m]);
    if (start == nullptr) continue;
    for (int n = 0; n < kVectors; ++n) {
      sums[m][n] = Q6_Vw_vadd_VwVw(sums[m][n], Splat(start[m]));
    }
  }
#pragma clang loop unroll(disable)
  for (int step = 0; step < steps; ++step) {
    Vector lanes[kVectors];
    for (int n = 0; n < kVectors; ++n) lanes[n] = b[n];
    b += kVectors;
    int32_t words[kRows];
    if constexpr (kRows % 2 == 0) {
      for (int m = 0; m < kRows; m += 2) {
        const uint64_t two = *reinterpret_cast<const uint64_t*>(a + m);
        words[m] = static_cast<int32_t>(two);
        words[m + 1] = static_cast<int32_t>(two >> 32);
      }
    } else {
      for (int m = 0; m < kRows; ++m) words[m] = a[m];
    }
    a += kRows;
    for (int n = 0; n < kVectors; ++n) {
      for (int m = 0; m < kRows; ++m) {
        sums[m][n] = Q6_Vw_vrmpyacc_VwVubRb(sums[m][n], lanes[n], words[m]);
      }
    }
  }
  if (target.rounded != nullptr && !target.waits) {
    return StoreRounded(target, places.whole, first_row, sums);
  }
  Vector largest = Q6_V_vzero();
  for (int m = 0; m < kRows; ++m) {
    largest = StoreSums<kVectors>(target, places, first_row + m, sums[m], largest);
  }
  if (target.largest != nullptr) target.largest->See(largest);
}

template <int kVectors>
void AllPanels(const PackedRows& a, int first, int count, bool starts, const Vector* b,
               const TileTarget& target) {
  const VectorPlaces places = PlacesOf(target);
  for (int row = 0, panel = 0; row < a.rows; row += panel) {
    panel = PanelRows(a.rows - row);
    const int32_t* words = a.words + row * a.steps + first * panel;
    const int32_t* start = starts ? a.start + row : nullptr;
    switch (panel) {
      case 6:
        PanelTile<6, kVectors>(words, start, count, b, target, places, row);
        break;
      case 4:
        PanelTile<4, kVectors>(words, start, count, b, target, places, row);
        break;
      case 2:
        PanelTile<2, kVectors>(words, start, count, b, target, places, row);
        break;
      default:
        PanelTile<1, kVectors>(words, start, count, b, target, places, row);
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
