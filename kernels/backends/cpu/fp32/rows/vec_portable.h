#pragma once

// Four lanes in plain C++: for machines without a row of their own, and as the simplest form of
// what a register type has to offer (vec_avx512.h tells what each function does).

#include <cstdint>

namespace runnel::fp32 {

struct VecPortable {
  static constexpr int kWidth = 4;
  static constexpr int kTileVectors = 2;
  static constexpr int kProductRows[3] = {0, 8, 4};
  static constexpr int kOuterRows[3] = {0, 8, 4};
  struct Reg {
    float v[kWidth];
  };

  static Reg Zero() { return Set1(0); }
  static Reg Set1(float v) { return {{v, v, v, v}}; }
  static Reg Load(const float* p) { return LoadPart(p, kWidth); }
  static void Store(float* p, Reg v) { StorePart(p, v, kWidth); }
  static Reg LoadPart(const float* p, int n) {
    Reg r = Zero();
    for (int i = 0; i < n; ++i) r.v[i] = p[i];
    return r;
  }
  static void StorePart(float* p, Reg v, int n) {
    for (int i = 0; i < n; ++i) p[i] = v.v[i];
  }
  static Reg Add(Reg a, Reg b) {
    for (int i = 0; i < kWidth; ++i) a.v[i] += b.v[i];
    return a;
  }
  static Reg Sub(Reg a, Reg b) {
    for (int i = 0; i < kWidth; ++i) a.v[i] -= b.v[i];
    return a;
  }
  static Reg Mul(Reg a, Reg b) {
    for (int i = 0; i < kWidth; ++i) a.v[i] *= b.v[i];
    return a;
  }
  // Rounds twice: not every machine has a fused one.
  static Reg Fma(Reg a, Reg b, Reg c) { return Add(Mul(a, b), c); }
  static Reg Fnma(Reg a, Reg b, Reg c) { return Sub(c, Mul(a, b)); }
  static Reg Max(Reg a, Reg b) {
    for (int i = 0; i < kWidth; ++i) b.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return b;
  }
  static Reg Min(Reg a, Reg b) {
    for (int i = 0; i < kWidth; ++i) b.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return b;
  }
  static Reg ClearOutside(Reg g, Reg v, Reg low, Reg high) {
    for (int i = 0; i < kWidth; ++i) {
      g.v[i] = v.v[i] <= low.v[i] || v.v[i] >= high.v[i] ? 0.0f : g.v[i];
    }
    return g;
  }
  static Reg ClearNotAbove(Reg g, Reg v, Reg low) {
    for (int i = 0; i < kWidth; ++i) g.v[i] = v.v[i] <= low.v[i] ? 0.0f : g.v[i];
    return g;
  }
  static void Transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    for (int r = 0; r < kWidth; ++r) {
      for (int c = 0; c < kWidth; ++c) out[c * out_stride + r] = in[r * in_stride + c];
    }
  }
};

}  // namespace runnel::fp32
