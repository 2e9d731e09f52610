#include "kernels/backends/cpu/int8/int8_kernels.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/backends/cpu/int8/int8_conv.h"
#include "proto/base/host/kernel_rows.h"

namespace runnel::cpu {
namespace {

#if defined(__x86_64__)
// Whether a tile that adds the bias on the way is as fast as one whose rows have it. It is where
// other units than those that multiply can do it (AMD Zen), and costs a fifth where there are none
// (Intel); then rows are copied with the bias, which costs a tenth where there is one panel.
bool AddsBiasForNothing() {
  constexpr int kSteps = 64, kTiles = 16, kRounds = 7;
  const Int8Kernels& kernels = kAvx512VnniRawInt8Kernels;
  alignas(64) static int8_t panel[kSteps * 4 * kMaxPanelColumns];
  alignas(64) static uint8_t rows[kMaxTileRows][kSteps * 4];
  alignas(64) static int32_t sums[kMaxTileRows][kMaxPanelColumns];
  const uint8_t* a[kMaxTileRows];
  int32_t* c[kMaxTileRows];
  for (int r = 0; r < kMaxTileRows; ++r) {
    a[r] = rows[r];
    c[r] = sums[r];
  }
  const Int8Segment segment = {.steps = kSteps};
  Int8Tile tile{.a = a, .a_step = kernels.k_group, .b = panel, .segments = &segment};
  tile.segment_count = 1;
  tile.c = c;
  tile.rows = kernels.tile_rows;
  tile.columns = kernels.panel_columns;
  const auto least = [&](bool raw) {
    tile.a_is_raw = raw;
    auto best = std::chrono::steady_clock::duration::max();
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kTiles; ++i) kernels.tile(tile);
      best = std::min(best, std::chrono::steady_clock::now() - begin);
    }
    return best;
  };
  return least(true) * 20 < least(false) * 21;
}
#endif

constexpr const Int8Kernels* kTable[] = {
#if defined(__x86_64__)
    &kAvx512VnniRawInt8Kernels, &kAvx512VnniInt8Kernels, &kAvx512Int8Kernels,
    &kAvxVnniInt8Kernels,       &kAvx2Int8Kernels,
#elif defined(__aarch64__)
    &kNeonI8mmInt8Kernels, &kNeonDotprodInt8Kernels, &kNeonInt8Kernels,
#endif
    &kPortableInt8Kernels};

std::vector<const Int8Kernels*> Probe() {
  std::vector<const Int8Kernels*> rows = SupportedRows(kTable);
#if defined(__x86_64__)
  if (rows.front() == &kAvx512VnniRawInt8Kernels && !AddsBiasForNothing()) rows.erase(rows.begin());
#endif
  return rows;
}

}  // namespace

absl::Span<const Int8Kernels* const> SupportedInt8Kernels() {
  static const std::vector<const Int8Kernels*> rows = Probe();
  return rows;
}

const Int8Kernels& BestInt8Kernels() { return *SupportedInt8Kernels().front(); }

}  // namespace runnel::cpu
