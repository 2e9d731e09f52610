#include "kernels/backends/hexagon/dsp/product/shifted_slices.h"

#include "kernels/backends/hexagon/dsp/hvx.h"
#include "kernels/backends/hexagon/dsp/product/rounded_sums.h"
#include "kernels/backends/hexagon/dsp/rounding.h"

namespace runnel::hexagon {
namespace {

// Samples first..first + count of the operation.
DspOp SliceOf(const DspOp& op, int first, int count) {
  DspOp slice = op;
  slice.flags &= ~kFlagShifted;
  slice.x.n = slice.y.n = count;
  const uint32_t x_sample = op.x.c * op.x.h * op.x.w, y_sample = op.y.c * op.y.h * op.y.w;
  slice.in[0].data += first * y_sample;
  slice.in[0].elements = count * y_sample;
  slice.in[1].data += first * x_sample;
  slice.in[1].elements = count * x_sample;
  return slice;
}

// The sums in the gradient as mantissas.
void RoundSums(const Machine& machine, const DspOp& op, int shift, int8_t* mantissas) {
  const DspTensor& g = op.out[0];
  Draws draws(op);
  if (g.bytes == sizeof(int64_t)) {
    const auto* sums = machine.data<int64_t>(g);
    for (uint32_t i = 0; i < g.elements; ++i)
      mantissas[i] = Saturate(RoundOne(op, draws, sums[i], shift, i));
    return;
  }
  const auto* sums = machine.data<int32_t>(g);
  for (uint32_t i = 0; i < g.elements; i += kVectorBytes) {
    const int n = static_cast<int>(Min<uint32_t>(kVectorBytes, g.elements - i));
    StoreBytes(mantissas + i, MantissasOf(RoundWords(op, draws, LoadWords(sums + i), shift, i)), n);
  }
}

// Divided by 2^below towards zero.
RUNNEL_INLINE Words Aligned(const int8_t* mantissas, int below) {
  Words words = WordsOfBytes(Load(mantissas));
  const Vector low = Splat((1 << below) - 1);
  for (Vector& v : words.v) {
    const Vector sign = Q6_Vw_vasr_VwR(v, 31);
    v = Q6_Vw_vasr_VwR(Q6_Vw_vadd_VwVw(v, Q6_V_vand_VV(sign, low)), below);
  }
  return words;
}

struct Slices {
  const int8_t* mantissas = nullptr;  // mantissas of the first; those of the others behind it
  uint32_t step = 0;                  // bytes from one to the next
  const int32_t* shifts = nullptr;
  int count = 0;
  int largest_shift = 0;
};

// The sum of all slices; gives the largest |.|.
template <typename T>
int32_t Merge(const Slices& slices, uint32_t elements, T* gradient) {
  int32_t largest = 0;
  alignas(kVectorBytes) int8_t lanes[kVectorBytes];
  for (uint32_t i = 0; i < elements; i += kVectorBytes) {
    Words total;
    for (Vector& v : total.v) v = Q6_V_vzero();
    for (int k = 0; k < slices.count; ++k) {
      const int below = slices.largest_shift - slices.shifts[k];
      if (below > 6) continue;
      const Words one = Aligned(slices.mantissas + k * slices.step + i, below);
      for (int v = 0; v < 4; ++v) total.v[v] = Q6_Vw_vadd_VwVw(total.v[v], one.v[v]);
    }
    *reinterpret_cast<Vector*>(lanes) = MantissasOf(total);
    const uint32_t n = Min<uint32_t>(kVectorBytes, elements - i);
    for (uint32_t j = 0; j < n; ++j) {
      gradient[i + j] = lanes[j];
      largest = Max<int32_t>(largest, lanes[j] < 0 ? -lanes[j] : lanes[j]);
    }
  }
  return largest;
}

}  // namespace

DspStatus RunShiftedSlices(Machine& machine, const DspOp& op, Kernel whole) {
  const DspTensor& g = op.out[0];
  Slices slices;
  slices.count = (op.x.n + op.slice - 1) / op.slice;
  slices.step = (g.elements + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  auto* mantissas = machine.scratch.Take<int8_t>(uint64_t{slices.step} * slices.count);
  auto* shifts = machine.scratch.Take<int32_t>(slices.count);
  if (mantissas == nullptr || shifts == nullptr) return DspStatus::kNoMemory;
  slices.mantissas = mantissas;
  slices.shifts = shifts;
  const uint32_t used = machine.scratch.used();
  for (int k = 0; k < slices.count; ++k) {
    const int first = k * op.slice;
    const DspOp one = SliceOf(op, first, Min(op.slice, op.x.n - first));
    const DspStatus status = whole(machine, one);
    machine.scratch.ReleaseTo(used);
    if (status != DspStatus::kOk) return status;
    shifts[k] = ShiftOf(op, machine.tail(g).max_abs);
    RoundSums(machine, op, shifts[k], mantissas + k * slices.step);
    slices.largest_shift = Max(slices.largest_shift, shifts[k]);
  }
  const int32_t largest = g.bytes == sizeof(int64_t)
                              ? Merge(slices, g.elements, machine.data<int64_t>(g))
                              : Merge(slices, g.elements, machine.data<int32_t>(g));
  machine.SetTail(
      g, machine.tail(op.in[0]).exponent + machine.tail(op.in[1]).exponent + slices.largest_shift,
      largest);
  return DspStatus::kOk;
}

}  // namespace runnel::hexagon
