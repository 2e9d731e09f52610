#pragma once

// Depthwise 3x3 convolutions from codes to codes, for any instruction set. Included by the files of
// instruction sets only: all static.
//
// An instruction set's Block<kIsWhole> is what a block of neighbouring channels needs; `inside` of
// them are there, all kChannels of a whole one:
//   Block(columns, row, c, inside)
//   Column Load(top, middle, bottom)         a column of the window
//   Sums Start()                             the offsets
//   void Add<k>(column, sums)                the column as number k of the window
//   void Store(sums, codes)

#include <cstdint>

#include "kernels/backends/cpu/codes/code_loops.h"

namespace runnel::cpu {
namespace {

// Where the window slides, each column is loaded once for the three outputs that read it.
template <typename Block>
void SlideNineTaps(const Block& block, const NineTaps& row, int64_t c) {
  // Copies of what `row` has: codes that are stored could be it, for all the compiler knows.
  const int64_t x_step = row.x_step, pixels = row.pixels, channels = row.channels;
  const int8_t *top = row.x[0] + c, *middle = row.x[3] + c, *bottom = row.x[6] + c;
  int8_t* codes = row.codes + c;
  auto first = block.Start(), second = block.Start();
  block.template Add<0>(block.Load(top, middle, bottom), first);
  const auto shared = block.Load(top + x_step, middle + x_step, bottom + x_step);
  block.template Add<1>(shared, first);
  block.template Add<0>(shared, second);
  for (int64_t p = 0; p < pixels; ++p) {
    const int64_t at = (p + 2) * x_step;
    const auto column = block.Load(top + at, middle + at, bottom + at);
    block.template Add<2>(column, first);
    block.Store(first, codes + p * channels);
    first = second;
    block.template Add<1>(column, first);
    second = block.Start();
    block.template Add<0>(column, second);
  }
}

template <typename Block>
void RunNineTaps(const Block& block, const NineTaps& row, int64_t c) {
  if (row.slides) return SlideNineTaps(block, row, c);
  const int64_t x_step = row.x_step, pixels = row.pixels, channels = row.channels;
  const int8_t* x[9];
  for (int tap = 0; tap < 9; ++tap) x[tap] = row.x[tap] + c;
  int8_t* codes = row.codes + c;
  for (int64_t p = 0; p < pixels; ++p) {
    const int64_t at = p * x_step;
    auto sums = block.Start();
    block.template Add<0>(block.Load(x[0] + at, x[3] + at, x[6] + at), sums);
    block.template Add<1>(block.Load(x[1] + at, x[4] + at, x[7] + at), sums);
    block.template Add<2>(block.Load(x[2] + at, x[5] + at, x[8] + at), sums);
    block.Store(sums, codes + p * channels);
  }
}

template <template <bool> class Block>
void DepthwiseNine(const CodeColumns& columns, const NineTaps& row) {
  constexpr int64_t kChannels = Block<true>::kChannels;
  int64_t c = 0;
  for (; c + kChannels <= row.channels; c += kChannels) {
    RunNineTaps(Block<true>(columns, row, c, kChannels), row, c);
  }
  if (c < row.channels) RunNineTaps(Block<false>(columns, row, c, row.channels - c), row, c);
}

}  // namespace
}  // namespace runnel::cpu
