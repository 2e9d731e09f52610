#pragma once

// The product of int8 matrices that every convolution and linear layer comes down to:
//   C[m][lane] = sum over k of A[m][k] * B[k][lane],  int32, exact.
// A's bytes are the scalar operand of vrmpy, four k to a register; B's are its vector operand, four
// k to a lane. The instruction takes B unsigned: B + 128 is multiplied, and C starts from
// -128 * (sum of A[m][k]), all modulo 2^32.
//
// A lies in panels of 6, 4, 2 or 1 rows, [k / 4][row][4]; B in tiles of 128, 64 or 32 lanes,
// [k / 4][lane][4]. Loops read one step ahead of both.

#include "kernels/backends/hexagon/dsp/hvx.h"
#include "kernels/backends/hexagon/dsp/product/rounded_sums.h"

namespace runnel::hexagon {

inline constexpr int kTileLanes = 128;

// Rows of the panel with which the last `rest` rows begin.
inline int PanelRows(int rest) { return rest >= 6 ? 6 : rest >= 4 ? 4 : rest >= 2 ? 2 : 1; }
// Vectors to a step of a tile with so many lanes: 1, 2 or 4.
inline int TileVectors(int lanes) { return lanes <= 32 ? 1 : lanes <= 64 ? 2 : 4; }

// A, packed. The panels of rows m.. begin at words + m * steps.
struct PackedRows {
  int32_t* words = nullptr;
  int32_t* start = nullptr;  // -128 * sum of a row
  int rows = 0;
  int steps = 0;         // k / 4, rounded up; what is missing is 0
  bool fetches = false;  // each panel is fetched ahead of its use
};

// Takes the memory for it and sets its size; false: there is no more.
bool TakeRows(Arena& arena, int rows, int depth, PackedRows& rows_of);

// Lanes of a tile that lie side by side in C.
struct LaneRun {
  uint32_t at = 0;  // elements from C's row
  int lane = 0;
  int count = 0;
};

// Target of a tile of C.
struct TileTarget {
  int32_t* c = nullptr;
  uint32_t first = 0;         // elements from C's begin to the first row
  uint32_t row_elements = 0;  // elements from row to row
  const LaneRun* runs = nullptr;
  int run_count = 0;
  int lanes = 0;
  bool adds = false;            // to what is there; of one run alone
  MaxWords* largest = nullptr;  // the largest finished sum; null: sums are not finished
  // For products over more steps than fit VTCM: sums that wait for later steps, 4 vectors a row.
  Vector* waiting = nullptr;
  bool takes = false;              // sums that wait
  bool waits = false;              // sums are not finished and do not go to C
  RoundedSums* rounded = nullptr;  // target of finished sums in place of C
};

// Asks for these steps of A's first panel ahead of their use, if it fetches.
void FetchPanel(const PackedRows& a, int first, int count);

// Steps first..first + count of A against a tile of B that has these steps alone. The first of
// several calls for a tile takes `starts`, so that each row's start is added once.
void MultiplyTile(const PackedRows& a, int first, int count, bool starts, const Vector* b,
                  const TileTarget& target);

}  // namespace runnel::hexagon
