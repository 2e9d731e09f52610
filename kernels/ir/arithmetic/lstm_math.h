#pragma once

// An LSTM's cell, one unit of one sample at a time. z are the sums of input gate i, forget gate f,
// candidate g and output gate o; a state is h and c:
//   c' = sigmoid(f) * c + sigmoid(i) * tanh(g), h' = sigmoid(o) * tanh(c').
// In single precision by one order of operations without a fused multiply-add, so that all backends
// and instruction sets give the same bytes.

#include <cstdint>

#include "kernels/ir/arithmetic/transformer_math.h"

namespace runnel::lstm {

struct Cell {
  float i = 0, f = 0, g = 0, o = 0;  // behind their curves
  float before = 0;                  // c
  float c = 0;                       // c'
  float tanh_c = 0;                  // tanh(c')
};

// Names the instruction set that the file is compiled for.
struct Portable {};

inline float Tanh(float x) { return 2.0f * transformer::SigmoidOf<Portable>(2.0f * x) - 1.0f; }

// Unit `u` of `units`: z of the sample, and its state; null: zeros.
inline Cell CellOf(const float* z, const float* state, int64_t units, int64_t u) {
  Cell cell;
  cell.i = transformer::SigmoidOf<Portable>(z[u]);
  cell.f = transformer::SigmoidOf<Portable>(z[units + u]);
  cell.g = Tanh(z[2 * units + u]);
  cell.o = transformer::SigmoidOf<Portable>(z[3 * units + u]);
  cell.before = state == nullptr ? 0.0f : state[units + u];
  cell.c = cell.f * cell.before + cell.i * cell.g;
  cell.tanh_c = Tanh(cell.c);
  return cell;
}

// Of c', from the gradients of h' and c'.
inline float GradientOfC(const Cell& cell, float dh, float dc) {
  return dc + dh * cell.o * (1.0f - cell.tanh_c * cell.tanh_c);
}

// Samples of `units`; state may be null.
inline void Forward(const float* z, const float* state, int64_t samples, int64_t units, float* y) {
  for (int64_t n = 0; n < samples; ++n, z += 4 * units, y += 2 * units) {
    const float* of_sample = state == nullptr ? nullptr : state + 2 * n * units;
    for (int64_t u = 0; u < units; ++u) {
      const Cell cell = CellOf(z, of_sample, units, u);
      y[u] = cell.o * cell.tanh_c;
      y[units + u] = cell.c;
    }
  }
}

inline void InputGradient(const float* dy, const float* z, const float* state, int64_t samples,
                          int64_t units, float* dz) {
  for (int64_t n = 0; n < samples; ++n, z += 4 * units, dz += 4 * units, dy += 2 * units) {
    const float* of_sample = state == nullptr ? nullptr : state + 2 * n * units;
    for (int64_t u = 0; u < units; ++u) {
      const Cell cell = CellOf(z, of_sample, units, u);
      const float dc = GradientOfC(cell, dy[u], dy[units + u]);
      dz[u] = dc * cell.g * (cell.i * (1.0f - cell.i));
      dz[units + u] = dc * cell.before * (cell.f * (1.0f - cell.f));
      dz[2 * units + u] = dc * cell.i * (1.0f - cell.g * cell.g);
      dz[3 * units + u] = dy[u] * cell.tanh_c * (cell.o * (1.0f - cell.o));
    }
  }
}

// The old h is in the sums alone: its part is 0.
inline void StateGradient(const float* dy, const float* z, const float* state, int64_t samples,
                          int64_t units, float* dstate) {
  for (int64_t n = 0; n < samples; ++n, z += 4 * units, dy += 2 * units, dstate += 2 * units) {
    for (int64_t u = 0; u < units; ++u) {
      const Cell cell = CellOf(z, state + 2 * n * units, units, u);
      dstate[u] = 0.0f;
      dstate[units + u] = GradientOfC(cell, dy[u], dy[units + u]) * cell.f;
    }
  }
}

}  // namespace runnel::lstm
