// Pools. The planes of all samples and channels are one long row of lanes: neighbouring outputs.

#include "kernels/backends/hexagon/dsp/images.h"
#include "kernels/backends/hexagon/dsp/rounding.h"

namespace runnel::hexagon {
namespace {

// x as n * c images of one channel.
DspImages PlanesOf(const DspImages& images) { return {images.n * images.c, 1, images.h, images.w}; }

// ceil(log2 taps).
int32_t TapBits(int64_t taps) { return BitsOf(taps); }

bool LayOutPlanes(Machine& machine, const DspOp& op, uint8_t fill, int ph, int pw,
                  LaidOutImages& images) {
  ImageLayout layout;
  layout.top = ph;
  layout.left = pw;
  layout.rows = Max(op.x.h + 2 * ph, (op.y.h - 1) * op.window.sh + op.window.kh);
  layout.columns = Max(op.x.w + 2 * pw, (op.y.w - 1) * op.window.sw + op.window.kw);
  layout.phases = op.window.sw;
  layout.fill = fill;
  if (!LayOut(machine, machine.data<uint8_t>(op.in[0]), PlanesOf(op.x), layout, images)) {
    return false;
  }
  images.output_row_step = op.window.sh;
  return true;
}

// Windows of 2 x 2 side by side over all of an image whose rows fill vectors: the rows of all
// planes are one long row of bytes, and 128 neighbouring outputs read four vectors of it.
bool HasQuarters(const DspOp& op) {
  const DspWindow& w = op.window;
  return w.kh == 2 && w.kw == 2 && w.sh == 2 && w.sw == 2 && w.ph == 0 && w.pw == 0 &&
         op.x.h % 2 == 0 && op.x.w % 2 == 0 && kVectorBytes % op.x.w == 0;
}

// v: four vectors of images `width` wide. After it, what 128 outputs read through each tap.
RUNNEL_INLINE void TapsOfQuarters(int width, Vector* v) {
  VectorPair rows[2];  // even ones, odd ones
  for (int i = 0; i < 2; ++i) {
    rows[i] = Q6_W_vdeal_VVR(v[2 * i + 1], v[2 * i], -width);
  }
  const VectorPair even = Q6_W_vdeal_VVR(Q6_V_lo_W(rows[1]), Q6_V_lo_W(rows[0]), -1);
  const VectorPair odd = Q6_W_vdeal_VVR(Q6_V_hi_W(rows[1]), Q6_V_hi_W(rows[0]), -1);
  v[0] = Q6_V_lo_W(even);
  v[1] = Q6_V_hi_W(even);
  v[2] = Q6_V_lo_W(odd);
  v[3] = Q6_V_hi_W(odd);
}

// The reverse.
RUNNEL_INLINE void QuartersOfTaps(int width, Vector* v) {
  const VectorPair even = Q6_W_vshuff_VVR(v[1], v[0], -1);
  const VectorPair odd = Q6_W_vshuff_VVR(v[3], v[2], -1);
  const VectorPair first = Q6_W_vshuff_VVR(Q6_V_lo_W(odd), Q6_V_lo_W(even), -width);
  const VectorPair second = Q6_W_vshuff_VVR(Q6_V_hi_W(odd), Q6_V_hi_W(even), -width);
  v[0] = Q6_V_lo_W(first);
  v[1] = Q6_V_hi_W(first);
  v[2] = Q6_V_lo_W(second);
  v[3] = Q6_V_hi_W(second);
}

// The largest of what taps read, and which tap that is: a later one only if it is larger.
class LargestTap {
 public:
  RUNNEL_INLINE void See(Vector value, int tap) {
    const Predicate larger = Q6_Q_vcmp_gt_VbVb(value, best_);
    best_ = Q6_V_vmux_QVV(larger, value, best_);
    tap_ = Q6_V_vmux_QVV(larger, SplatBytes(tap), tap_);
  }
  RUNNEL_INLINE void Store(int8_t* y, uint8_t* taps, int count) const {
    StoreBytes(y, best_, count);
    if (taps != nullptr) StoreBytes(taps, tap_, count);
  }

 private:
  Vector best_ = SplatBytes(-128), tap_ = Q6_V_vzero();
};

void MaxOfQuarters(Machine& machine, const DspOp& op) {
  const int8_t* x = machine.data<int8_t>(op.in[0]);
  int8_t* y = machine.data<int8_t>(op.out[0]);
  uint8_t* taps = op.out[1].data != 0 ? machine.data<uint8_t>(op.out[1]) : nullptr;
  for (uint32_t first = 0; first < op.out[0].elements; first += kVectorBytes) {
    Vector v[4];
    for (int i = 0; i < 4; ++i) v[i] = Load(x + 4 * first + i * kVectorBytes);
    TapsOfQuarters(op.x.w, v);
    LargestTap largest;
    for (int i = 0; i < 4; ++i) largest.See(v[i], i);
    largest.Store(y + first, taps != nullptr ? taps + first : nullptr,
                  static_cast<int>(Min<uint32_t>(kVectorBytes, op.out[0].elements - first)));
  }
}

void SpreadToQuarters(Machine& machine, const DspOp& op) {
  const int8_t* dy = machine.data<int8_t>(op.in[0]);
  const uint8_t* taps = machine.data<uint8_t>(op.in[1]);
  int8_t* dx = machine.data<int8_t>(op.out[0]);
  const uint32_t outputs = op.in[0].elements;
  for (uint32_t first = 0; first < outputs; first += kVectorBytes) {
    const Vector tap = Load(taps + first);
    const Vector errors = Q6_Vb_vmax_VbVb(Load(dy + first), SplatBytes(-127));
    Vector v[4], others = errors;  // an index that is no tap counts as the first
    for (int i = 3; i > 0; --i) {
      const Predicate is_tap = Q6_Q_vcmp_eq_VbVb(tap, SplatBytes(i));
      v[i] = Q6_V_vmux_QVV(is_tap, errors, Q6_V_vzero());
      others = Q6_V_vmux_QVV(is_tap, Q6_V_vzero(), others);
    }
    v[0] = others;
    QuartersOfTaps(op.x.w, v);
    const int count = 4 * static_cast<int>(Min<uint32_t>(kVectorBytes, outputs - first));
    for (int i = 0; i < 4; ++i) {
      StoreBytes(dx + 4 * first + i * kVectorBytes, v[i], count - i * kVectorBytes);
    }
  }
}

// Calls body(reader, first output, outputs) for pieces of at most 128 outputs.
template <typename Body>
void ForEachTile(const DspOp& op, const LaidOutImages& images, const Body& body) {
  const DspImages grid = PlanesOf(op.y);
  const uint32_t total = op.out[0].elements;
  Segment segments[kVectorBytes];
  for (uint32_t first = 0; first < total; first += kVectorBytes) {
    const int count = static_cast<int>(Min<uint32_t>(kVectorBytes, total - first));
    LaneReader reader(images.data, segments, SegmentsOf(images, grid, first, count, segments));
    body(reader, first, count);
  }
}

}  // namespace

// No mantissa is -128, so padding of -128 never wins; a later tap wins only if it is larger.
DspStatus MaxPoolForward(Machine& machine, const DspOp& op) {
  const DspWindow& w = op.window;
  const int32_t exponent = machine.tail(op.in[0]).exponent;
  if (HasQuarters(op)) {
    MaxOfQuarters(machine, op);
    machine.SetTail(op.out[0], exponent);
    return DspStatus::kOk;
  }
  LaidOutImages images;
  if (!LayOutPlanes(machine, op, 0x80, w.ph, w.pw, images)) return DspStatus::kNoMemory;
  int8_t* y = machine.data<int8_t>(op.out[0]);
  uint8_t* taps = op.out[1].data != 0 ? machine.data<uint8_t>(op.out[1]) : nullptr;
  ForEachTile(op, images, [&](LaneReader& reader, uint32_t first, int count) {
    LargestTap largest;
    for (int i = 0; i < w.kh; ++i) {
      for (int j = 0; j < w.kw; ++j) {
        largest.See(reader.Read(images.OffsetOf(0, i, j)), i * w.kw + j);
      }
    }
    largest.Store(y + first, taps != nullptr ? taps + first : nullptr, count);
  });
  machine.SetTail(op.out[0], exponent);
  return DspStatus::kOk;
}

DspStatus MaxPoolInputGradient(Machine& machine, const DspOp& op) {
  const DspWindow& w = op.window;
  if (HasQuarters(op)) {
    SpreadToQuarters(machine, op);
    machine.SetTail(op.out[0], machine.tail(op.in[0]).exponent);
    return DspStatus::kOk;
  }
  const int plane = op.x.h * op.x.w;
  const int8_t* dy = machine.data<int8_t>(op.in[0]);
  const uint8_t* taps = machine.data<uint8_t>(op.in[1]);
  int8_t* dx = machine.data<int8_t>(op.out[0]);
  auto* sums = machine.scratch.Take<int32_t>(plane);
  // offsets of a tap from its window's first
  auto* places = machine.scratch.Take<int32_t>(w.kh * w.kw);
  if (sums == nullptr || places == nullptr) return DspStatus::kNoMemory;
  for (int i = 0; i < w.kh; ++i) {
    for (int j = 0; j < w.kw; ++j) places[i * w.kw + j] = i * op.x.w + j;
  }
  for (int p = 0; p < op.x.n * op.x.c; ++p, dx += plane) {
    memset(sums, 0, plane * sizeof(int32_t));
    for (int i = 0; i < op.y.h; ++i) {
      int first = (i * w.sh - w.ph) * op.x.w - w.pw;
      for (int j = 0; j < op.y.w; ++j, first += w.sw) {
        const int tap = *taps++;
        const int at = first + (tap < w.kh * w.kw ? places[tap] : 0);
        // The host's indices need not be a forward's.
        if (at >= 0 && at < plane) sums[at] += *dy;
        ++dy;
      }
    }
    for (int at = 0; at < plane; at += kVectorBytes) {
      StoreBytes(dx + at, MantissasOf(LoadWords(sums + at)), plane - at);
    }
  }
  machine.SetTail(op.out[0], machine.tail(op.in[0]).exponent);
  return DspStatus::kOk;
}

// At most 256 taps: their sum fits into 16 bits.
DspStatus AvgPoolForward(Machine& machine, const DspOp& op) {
  const DspWindow& w = op.window;
  LaidOutImages images;
  if (!LayOutPlanes(machine, op, 0, 0, 0, images)) return DspStatus::kNoMemory;
  int32_t* y = machine.data<int32_t>(op.out[0]);
  MaxWords largest;
  ForEachTile(op, images, [&](LaneReader& reader, uint32_t first, int count) {
    VectorPair sums = Q6_W_vcombine_VV(Q6_V_vzero(), Q6_V_vzero());
    for (int i = 0; i < w.kh; ++i) {
      for (int j = 0; j < w.kw; ++j) {
        const VectorPair values = Q6_Wh_vunpack_Vb(reader.Read(images.OffsetOf(0, i, j)));
        sums = Q6_Wh_vadd_WhWh(sums, values);
      }
    }
    const Words words = WordsOfHalves(sums);
    largest.See(words, count);
    StoreWords(y + first, words, count);
  });
  machine.SetTail(op.out[0], machine.tail(op.in[0]).exponent - TapBits(w.kh * w.kw),
                  largest.Result());
  return DspStatus::kOk;
}

// Windows do not overlap.
DspStatus AvgPoolInputGradient(Machine& machine, const DspOp& op) {
  const DspWindow& w = op.window;
  const int8_t* dy = machine.data<int8_t>(op.in[0]);
  int8_t* dx = machine.data<int8_t>(op.out[0]);
  const int plane = op.x.h * op.x.w;
  memset(dx, 0, op.out[0].elements);
  for (int p = 0; p < op.x.n * op.x.c; ++p, dx += plane) {
    for (int i = 0; i < op.y.h; ++i) {
      for (int j = 0; j < op.y.w; ++j, ++dy) {
        int8_t* window = dx + i * w.sh * op.x.w + j * w.sw;
        for (int row = 0; row < w.kh; ++row, window += op.x.w) {
          for (int column = 0; column < w.kw; ++column) window[column] = *dy;
        }
      }
    }
  }
  machine.SetTail(op.out[0], machine.tail(op.in[0]).exponent - TapBits(w.kh * w.kw));
  return DspStatus::kOk;
}

DspStatus GlobalAvgPoolForward(Machine& machine, const DspOp& op) {
  const int8_t* x = machine.data<int8_t>(op.in[0]);
  int32_t* y = machine.data<int32_t>(op.out[0]);
  const int plane = op.x.h * op.x.w;
  int32_t largest = 0;
  alignas(kVectorBytes) int32_t lanes[kVectorWords];
  for (int p = 0; p < op.x.n * op.x.c; ++p, x += plane) {
    Vector sums = Q6_V_vzero();
    for (int at = 0; at < plane; at += kVectorBytes) {
      sums = Q6_Vw_vrmpyacc_VwVbVb(sums, KeepBytes(Load(x + at), plane - at), SplatBytes(1));
    }
    *reinterpret_cast<Vector*>(lanes) = sums;
    int32_t sum = 0;
    for (int32_t lane : lanes) sum += lane;
    y[p] = sum;
    largest = Max(largest, sum < 0 ? -sum : sum);
  }
  machine.SetTail(op.out[0], machine.tail(op.in[0]).exponent - TapBits(plane), largest);
  return DspStatus::kOk;
}

DspStatus GlobalAvgPoolInputGradient(Machine& machine, const DspOp& op) {
  const int8_t* dy = machine.data<int8_t>(op.in[0]);
  int8_t* dx = machine.data<int8_t>(op.out[0]);
  const int plane = op.x.h * op.x.w;
  for (int p = 0; p < op.x.n * op.x.c; ++p, dx += plane) memset(dx, dy[p], plane);
  machine.SetTail(op.out[0], machine.tail(op.in[0]).exponent - TapBits(plane));
  return DspStatus::kOk;
}

}  // namespace runnel::hexagon
