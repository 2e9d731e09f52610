#pragma once

// Advanced SIMD registers of arm64 for the kernel templates; vec_avx512.h tells what each function
// does. Only for kernels_neon.cc.

#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstdint>

namespace runnel::fp32 {

struct VecNeon {
  static constexpr int kWidth = 4;
  static constexpr int kTileVectors = 4;
  static constexpr int kProductRows[5] = {0, 12, 10, 8, 6};
  static constexpr int kOuterRows[5] = {0, 16, 12, 8, 6};
  using Reg = float32x4_t;

  static Reg Zero() { return vdupq_n_f32(0); }
  static Reg Set1(float v) { return vdupq_n_f32(v); }
  static Reg Load(const float* p) { return vld1q_f32(p); }
  static void Store(float* p, Reg v) { vst1q_f32(p, v); }
  static Reg LoadPart(const float* p, int n) {
    Reg v = Zero();
    if (n == 4) return Load(p);
    if (n >= 2) v = vcombine_f32(vld1_f32(p), vdup_n_f32(0));
    if (n == 3) v = vld1q_lane_f32(p + 2, v, 2);
    if (n == 1) v = vld1q_lane_f32(p, v, 0);
    return v;
  }
  static void StorePart(float* p, Reg v, int n) {
    if (n == 4) return Store(p, v);
    if (n >= 2) vst1_f32(p, vget_low_f32(v));
    if (n == 3) vst1q_lane_f32(p + 2, v, 2);
    if (n == 1) vst1q_lane_f32(p, v, 0);
  }
  static Reg Add(Reg a, Reg b) { return vaddq_f32(a, b); }
  static Reg Sub(Reg a, Reg b) { return vsubq_f32(a, b); }
  static Reg Mul(Reg a, Reg b) { return vmulq_f32(a, b); }
  static Reg Fma(Reg a, Reg b, Reg c) { return vfmaq_f32(c, a, b); }
  static Reg Fnma(Reg a, Reg b, Reg c) { return vfmsq_f32(c, a, b); }
  // Not the maximum and minimum instructions, whose NaN may come from either side.
  static Reg Max(Reg a, Reg b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static Reg Min(Reg a, Reg b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static Reg ClearOutside(Reg g, Reg v, Reg low, Reg high) {
    return Clear(g, vorrq_u32(vcleq_f32(v, low), vcgeq_f32(v, high)));
  }
  static Reg ClearNotAbove(Reg g, Reg v, Reg low) { return Clear(g, vcleq_f32(v, low)); }

  static void Transpose(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
    const Reg r0 = Load(in), r1 = Load(in + in_stride);
    const Reg r2 = Load(in + 2 * in_stride), r3 = Load(in + 3 * in_stride);
    const float64x2_t a = vreinterpretq_f64_f32(vzip1q_f32(r0, r1));
    const float64x2_t b = vreinterpretq_f64_f32(vzip2q_f32(r0, r1));
    const float64x2_t c = vreinterpretq_f64_f32(vzip1q_f32(r2, r3));
    const float64x2_t d = vreinterpretq_f64_f32(vzip2q_f32(r2, r3));
    Store(out, vreinterpretq_f32_f64(vzip1q_f64(a, c)));
    Store(out + out_stride, vreinterpretq_f32_f64(vzip2q_f64(a, c)));
    Store(out + 2 * out_stride, vreinterpretq_f32_f64(vzip1q_f64(b, d)));
    Store(out + 3 * out_stride, vreinterpretq_f32_f64(vzip2q_f64(b, d)));
  }

 private:
  // g, but 0 where `where` is all ones.
  static Reg Clear(Reg g, uint32x4_t where) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(g), where));
  }
};

}  // namespace runnel::fp32
#endif  // __aarch64__
