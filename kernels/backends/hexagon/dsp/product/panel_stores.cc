#include "kernels/backends/hexagon/dsp/product/panel_stores.h"

#include "kernels/backends/hexagon/dsp/shuffles.h"

namespace runnel::hexagon {
namespace {

constexpr int kMostRows = 12;

// Each row is pieces of kUnit bytes, one an image. put(image, offset, vector, bytes): what goes,
// from `offset` bytes on, behind the place of the first row's piece.
template <int kUnit, int kRows, typename Put>
RUNNEL_INLINE void PutImages(const Vector* rows, int stride, const Put& put) {
  constexpr int kTogether = Min(kRows > 4 ? 8 : kRows, kVectorBytes / kUnit);
  constexpr int kImages = kVectorBytes / (kTogether * kUnit);  // in a vector
#pragma clang loop unroll(full)
  for (int first = 0; first < kRows; first += kTogether) {
    Vector mixed[kTogether];
    for (int i = 0; i < kTogether; ++i) mixed[i] = rows[Min(first + i, kRows - 1) * stride];
    MixUnits<kUnit, kTogether>(mixed);
    const int bytes = Min(kTogether, kRows - first) * kUnit;
#pragma clang loop unroll(full)
    for (int i = 0; i < kTogether; ++i) {
#pragma clang loop unroll(full)
      for (int j = 0; j < kImages; ++j) {
        put(i * kImages + j, first * kUnit,
            j == 0 ? mixed[i] : Q6_V_vror_VR(mixed[i], j * kTogether * kUnit), bytes);
      }
    }
  }
}

template <int kUnit, typename Put>
RUNNEL_INLINE void PutPanelImages(int rows, const Vector* from, int stride, const Put& put) {
  if (rows == 6) return PutImages<kUnit, 6>(from, stride, put);
  if (rows == 4) return PutImages<kUnit, 4>(from, stride, put);
  if (rows == 2) return PutImages<kUnit, 2>(from, stride, put);
  PutImages<kUnit, 1>(from, stride, put);
}

// Images of kImage words, as many as 128 lanes hold.
template <int kImage>
void StoreImages(const TileTarget& target, int first_row, int rows, const Vector* sums) {
  int32_t* c = target.c + target.first + first_row * kImage;
  const LaneRun* run = target.runs;
  for (int n = 0; n < 4; ++n, run += kVectorWords / kImage) {
    PutPanelImages<4 * kImage>(rows, sums + n, 4, [&](int i, int offset, Vector value, int bytes) {
      StoreBytesAlone(c + run[i].at + offset / 4, value, bytes);
    });
  }
}

void StoreParts(const TileTarget& target, int first_row, int rows, const Vector* sums) {
  const int vectors = TileVectors(target.lanes);
  alignas(kVectorBytes) int32_t row[kTileLanes + kVectorWords];
  for (int m = 0; m < rows; ++m) {
    int32_t* c = target.c + target.first + (first_row + m) * target.row_elements;
    for (int n = 0; n < vectors; ++n) reinterpret_cast<Vector*>(row)[n] = sums[4 * m + n];
    for (int i = 0; i < target.run_count; ++i) {
      const LaneRun& run = target.runs[i];
      for (int at = 0; at < run.count; at += kVectorWords) {
        StoreBytesAlone(c + run.at + at, Load(row + run.lane + at), (run.count - at) * 4);
      }
    }
  }
}

// One row of the tile as bytes.
void StoreRow(const TileTarget& target, int m, Vector value) {
  const RoundedSums& to = *target.rounded;
  const uint32_t first = target.first + m * target.row_elements;
  alignas(kVectorBytes) int8_t row[2 * kVectorBytes];
  *reinterpret_cast<Vector*>(row) = value;
  for (int i = 0; i < target.run_count; ++i) {
    const LaneRun& run = target.runs[i];
    to.Put(first + run.at, run.lane == 0 ? value : Load(row + run.lane), run.count);
  }
}

template <int kImage>
void StoreByteImages(const TileTarget& target, int first_row, int rows, const Vector* bytes) {
  const uint32_t first = target.first + first_row * kImage;
  const RoundedSums& to = *target.rounded;
  PutPanelImages<kImage>(rows, bytes, 1, [&](int i, int offset, Vector value, int count) {
    to.Put(first + target.runs[i].at + offset, value, count);
  });
}

void StoreBytesOf(const TileTarget& target, const Places& places, int first_row, int rows,
                  const Vector* bytes) {
  if (places.image == 4) return StoreByteImages<4>(target, first_row, rows, bytes);
  if (places.image == 16) return StoreByteImages<16>(target, first_row, rows, bytes);
  if (places.image == 64) return StoreByteImages<64>(target, first_row, rows, bytes);
  if (target.runs[0].count != kTileLanes) {
    for (int m = 0; m < rows; ++m) StoreRow(target, first_row + m, bytes[m]);
    return;
  }
  uint32_t at = target.first + first_row * target.row_elements + target.runs[0].at;
  for (int m = 0; m < rows; ++m, at += target.row_elements) {
    target.rounded->Put(at, bytes[m], kVectorBytes);
  }
}

// round(sums, |sums|) returns a vector of rounded sums.
template <typename Round>
RUNNEL_INLINE void RoundRows(RoundedSums& to, int rows, const Vector* sums, Vector* bytes,
                             const Round& round) {
  const Vector limit = Splat(128 << to.shift);
  const Vector least = to.relu ? Q6_V_vzero() : SplatBytes(-127);
  Vector saturated = to.saturated;
  for (int m = 0; m < rows; ++m) {
    Words words;
    for (int n = 0; n < 4; ++n) {
      const Vector sum = sums[4 * m + n];
      const Vector magnitude = Q6_Vw_vabs_Vw(sum);
      saturated = Q6_Vw_condacc_QVwVw(Q6_Q_vcmp_gt_VwVw(magnitude, limit), saturated, Splat(1));
      words.v[n] = round(sum, magnitude);
    }
    bytes[m] = Q6_Vb_vmax_VbVb(MantissasOf(words), least);
  }
  to.saturated = saturated;
}

void StoreRounded(const TileTarget& target, const Places& places, int first_row, int rows,
                  const Vector* sums) {
  RoundedSums& to = *target.rounded;
  Vector bytes[kMostRows];
  if (to.pseudo) {
    RoundRows(to, rows, sums, bytes, PseudoRounding(to.shift));
  } else if (to.shift == 0) {
    RoundRows(to, rows, sums, bytes, [](Vector words, Vector) { return words; });
  } else {
    const VectorRounding round(kRoundHalfAway, to.shift);
    RoundRows(to, rows, sums, bytes, [&](Vector words, Vector) { return round(words); });
  }
  StoreBytesOf(target, places, first_row, rows, bytes);
}

// The lanes that the tile does not have become 0.
void ClearMissing(int lanes, int rows, Vector* sums) {
  for (int m = 0; m < rows; ++m) {
    for (int n = 0; n < 4; ++n) {
      sums[4 * m + n] = KeepBytes(sums[4 * m + n], (lanes - n * kVectorWords) * 4);
    }
  }
}

}  // namespace

Places PlacesOf(const TileTarget& target) {
  Places places;
  const LaneRun* runs = target.runs;
  const auto of_count = [&](int count) {
    for (int i = 0; i < target.run_count; ++i) {
      if (runs[i].count != count) return false;
    }
    return true;
  };
  const int count = runs[0].count;
  if (target.lanes == kTileLanes && static_cast<uint32_t>(count) == target.row_elements &&
      (count == 4 || count == 16 || count == 64) && of_count(count)) {
    places.image = count;
  }
  if (target.rounded != nullptr || target.lanes != TileVectors(target.lanes) * kVectorWords) {
    return places;
  }
  places.direct = true;
  for (int i = 0; i < target.run_count; ++i) {
    if (runs[i].count % kVectorWords != 0) places.direct = false;
    for (int at = 0; at < runs[i].count; at += kVectorWords) {
      places.at[(runs[i].lane + at) / kVectorWords] = runs[i].at + at;
    }
  }
  return places;
}

void StorePanel(const TileTarget& target, const Places& places, int first_row, int rows,
                Vector* sums) {
  if (target.lanes != kTileLanes) ClearMissing(target.lanes, rows, sums);
  if (target.largest != nullptr) {
    MaxWords largest = *target.largest;
    for (int i = 0; i < 4 * rows; ++i) largest.See(sums[i]);
    *target.largest = largest;
  }
  if (target.rounded != nullptr) return StoreRounded(target, places, first_row, rows, sums);
  if (places.image == 4) return StoreImages<4>(target, first_row, rows, sums);
  if (places.image == 16) return StoreImages<16>(target, first_row, rows, sums);
  StoreParts(target, first_row, rows, sums);
}

}  // namespace runnel::hexagon
