#pragma once

// Vectors of 128 bytes: loads, stores and the few shapes of data that the kernels share. Only the
// DSP's compiler reads this header.
//
// Partial stores write back, unchanged, what lies behind the elements (kSlackBytes of op_list.h):
// nobody else writes there while an operation runs. For results that threads share there is
// StoreBytesAlone.

#include <hexagon_types.h>
#include <hvx_hexagon_protos.h>
#include <stdint.h>

namespace runnel::hexagon {

using Vector = HVX_Vector;
using VectorPair = HVX_VectorPair;
using Predicate = HVX_VectorPred;
// Any address. Plain vectors must be aligned: the hardware drops the low seven bits of an address.
typedef long UnalignedVector __attribute__((__vector_size__(128), __aligned__(1)));

inline constexpr int kVectorBytes = 128;
inline constexpr int kVectorWords = 32;
#define RUNNEL_INLINE inline __attribute__((always_inline))

template <typename T>
constexpr RUNNEL_INLINE T Min(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
constexpr RUNNEL_INLINE T Max(T a, T b) {
  return a > b ? a : b;
}

RUNNEL_INLINE Vector Splat(int32_t value) { return Q6_V_vsplat_R(value); }
RUNNEL_INLINE Vector SplatBytes(int32_t value) { return Q6_V_vsplat_R((value & 255) * 0x01010101); }
RUNNEL_INLINE Vector Load(const void* at) { return *reinterpret_cast<const UnalignedVector*>(at); }
RUNNEL_INLINE void Store(void* at, Vector value) {
  *reinterpret_cast<UnalignedVector*>(at) = value;
}
// The first `bytes` of the vector, 0..128.
RUNNEL_INLINE void StoreBytes(void* at, Vector value, int bytes) {
  if (bytes >= kVectorBytes) return Store(at, value);
  if (bytes <= 0) return;
  Store(at, Q6_V_vmux_QVV(Q6_Q_vsetq_R(bytes), value, Load(at)));
}
// As StoreBytes, but another thread may write what lies behind.
RUNNEL_INLINE void StoreBytesAlone(void* at, Vector value, int bytes) {
  if (bytes >= kVectorBytes) return Store(at, value);
  if (bytes <= 0) return;
  // Two aligned stores with masks. The first bytes of `value` go to the end of the lower vector.
  const auto address = reinterpret_cast<uintptr_t>(at);
  const int offset = static_cast<int>(address % kVectorBytes), end = offset + bytes;
  auto* lower = reinterpret_cast<Vector*>(address - offset);
  const Vector turned = Q6_V_vlalign_VVR(value, value, offset);
  const Predicate before = Q6_Q_vsetq_R(offset);
  if (end <= kVectorBytes) {
    Q6_vmem_QRIV(Q6_Q_and_QQn(Q6_Q_vsetq2_R(end), before), lower, turned);
    return;
  }
  Q6_vmem_QnRIV(before, lower, turned);
  Q6_vmem_QRIV(Q6_Q_vsetq_R(end), lower + 1, turned);
}
// Brings memory into the L2 cache beside what the thread does; it may go unheard. A thread has one
// such request at a time, a new one ends the last.
RUNNEL_INLINE void FetchAhead(const void* from, uint32_t bytes) {
  // Rows of a vector each, one behind the other.
  constexpr uint64_t kRows = uint64_t{kVectorBytes} << 32 | kVectorBytes << 16;
  const uint64_t box = kRows | Min<uint32_t>((bytes + kVectorBytes - 1) / kVectorBytes, 0xffff);
  __asm__ volatile("l2fetch(%0,%1)" : : "r"(from), "r"(box));
}

// `value` in its first `bytes`, zero behind.
RUNNEL_INLINE Vector KeepBytes(Vector value, int bytes) {
  if (bytes >= kVectorBytes) return value;
  if (bytes <= 0) return Q6_V_vzero();
  return Q6_V_vmux_QVV(Q6_Q_vsetq_R(bytes), value, Q6_V_vzero());
}

// 128 elements as 32-bit words, in order.
struct Words {
  Vector v[4];
};
RUNNEL_INLINE Words LoadWords(const int32_t* at) {
  Words words;
  for (int i = 0; i < 4; ++i) words.v[i] = Load(at + i * kVectorWords);
  return words;
}
RUNNEL_INLINE void StoreWords(int32_t* at, const Words& words, int count) {
  for (int i = 0; i < 4; ++i) {
    StoreBytes(at + i * kVectorWords, words.v[i], (count - i * kVectorWords) * 4);
  }
}
RUNNEL_INLINE Words WordsOfHalves(VectorPair halves) {
  const VectorPair low = Q6_Ww_vunpack_Vh(Q6_V_lo_W(halves));
  const VectorPair high = Q6_Ww_vunpack_Vh(Q6_V_hi_W(halves));
  return {{Q6_V_lo_W(low), Q6_V_hi_W(low), Q6_V_lo_W(high), Q6_V_hi_W(high)}};
}
RUNNEL_INLINE Words WordsOfBytes(Vector bytes) { return WordsOfHalves(Q6_Wh_vunpack_Vb(bytes)); }
// Each word, saturated to -127..127.
RUNNEL_INLINE Vector MantissasOf(const Words& words) {
  const Vector low = Q6_Vh_vpack_VwVw_sat(words.v[1], words.v[0]);
  const Vector high = Q6_Vh_vpack_VwVw_sat(words.v[3], words.v[2]);
  return Q6_Vb_vmax_VbVb(Q6_Vb_vpack_VhVh_sat(high, low), SplatBytes(-127));
}

// The largest |word| seen.
class MaxWords {
 public:
  RUNNEL_INLINE void See(Vector words) { max_ = Q6_Vw_vmax_VwVw(max_, Q6_Vw_vabs_Vw(words)); }
  RUNNEL_INLINE void See(const Words& words, int count) {
    for (int i = 0; i < 4; ++i) See(KeepBytes(words.v[i], (count - i * kVectorWords) * 4));
  }
  RUNNEL_INLINE void Join(const MaxWords& other) { max_ = Q6_Vw_vmax_VwVw(max_, other.max_); }
  int32_t Result() const {
    alignas(kVectorBytes) int32_t lanes[kVectorWords];
    *reinterpret_cast<Vector*>(lanes) = max_;
    int32_t largest = 0;
    for (int32_t lane : lanes) largest = Max(largest, lane);
    return largest;
  }

 private:
  Vector max_ = Q6_V_vzero();
};

// The largest |byte| seen; no byte is -128.
class MaxBytes {
 public:
  RUNNEL_INLINE void See(Vector bytes, int count) {
    max_ = Q6_Vb_vmax_VbVb(max_, Q6_Vb_vabs_Vb(KeepBytes(bytes, count)));
  }
  int32_t Result() const {
    alignas(kVectorBytes) int8_t lanes[kVectorBytes];
    *reinterpret_cast<Vector*>(lanes) = max_;
    int32_t largest = 0;
    for (int32_t lane : lanes) largest = Max(largest, lane);
    return largest;
  }

 private:
  Vector max_ = Q6_V_vzero();
};

}  // namespace runnel::hexagon
