#include "kernels/backends/cpu/int8/int8_kernels.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>

#include "kernels/backends/cpu/int8/int8_conv.h"
#include "kernels/backends/cpu/isa.h"

namespace runnel::cpu {
namespace {

struct Row {
  const Int8Kernels* kernels;
  bool (*supported)(const CpuFeatures&);
};

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

// Best first.
constexpr Row kRows[] = {
#if defined(__x86_64__)
    {&kAvx512VnniRawInt8Kernels,
     [](const CpuFeatures& host) { return host.avx512_vnni && AddsBiasForNothing(); }},
    {&kAvx512VnniInt8Kernels, [](const CpuFeatures& host) { return host.avx512_vnni; }},
    {&kAvx512Int8Kernels, [](const CpuFeatures& host) { return host.avx512; }},
    {&kAvxVnniInt8Kernels, [](const CpuFeatures& host) { return host.avx_vnni; }},
    {&kAvx2Int8Kernels, [](const CpuFeatures& host) { return host.avx2; }},
#endif
#if defined(__aarch64__)
    {&kNeonI8mmInt8Kernels, [](const CpuFeatures& host) { return host.neon_i8mm; }},
    {&kNeonDotprodInt8Kernels, [](const CpuFeatures& host) { return host.neon_dotprod; }},
    {&kNeonInt8Kernels, [](const CpuFeatures& host) { return host.neon; }},
#endif
    {&kPortableInt8Kernels, [](const CpuFeatures&) { return true; }},
};

struct Supported {
  std::array<const Int8Kernels*, std::size(kRows)> kernels = {};
  size_t count = 0;
};

const Supported& Probe() {
  static const Supported supported = [] {
    Supported found;
    for (const Row& row : kRows) {
      if (row.supported(HostFeatures())) found.kernels[found.count++] = row.kernels;
    }
    return found;
  }();
  return supported;
}

}  // namespace

absl::Span<const Int8Kernels* const> SupportedInt8Kernels() {
  const Supported& supported = Probe();
  return absl::MakeConstSpan(supported.kernels.data(), supported.count);
}

const Int8Kernels& BestInt8Kernels() { return *SupportedInt8Kernels().front(); }

}  // namespace runnel::cpu
