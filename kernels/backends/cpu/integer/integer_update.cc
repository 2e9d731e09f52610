// Loss, gradient sums and weight update of NITI.

#include <algorithm>
#include <cstdlib>

#include "kernels/backends/cpu/integer/integer_kernels.h"
#include "kernels/ir/arithmetic/integer_loss.h"
#include "kernels/ir/arithmetic/integer_math.h"
#include "proto/base/status_macros.h"

namespace runnel::cpu {
namespace {

constexpr int64_t kChunk = 8192;

template <typename Body>
void ForEachChunk(const Call& call, int64_t count, const Body& body) {
  ParallelFor(call.machine, (count + kChunk - 1) / kChunk, [&](int, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(i * kChunk, std::min(count, (i + 1) * kChunk));
  });
}

// 64-bit gradients with a rounding that no vector loop has.
void UpdateSlowly(const Call& call, const int64_t* g, int shift, int64_t begin, int64_t end) {
  const int8_t* w = call.in<int8_t>(0);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t rounded = shift == 0 ? g[i] : RoundHalfAway(g[i], shift);
    call.out<int8_t>(0)[i] = SaturateMantissa(w[i] - SaturateMantissa(rounded));
  }
}

void RoundNarrow(const Call& call, int shift, int64_t begin, int64_t end, int8_t* rounded) {
  const int32_t* g = call.in<int32_t>(1) + begin;
  if (shift <= 31) {
    return RoundToMantissas(call, call.out_shape(0), begin, end - begin, g, shift, false, nullptr,
                            rounded);
  }
  for (int64_t i = 0; i < end - begin; ++i) {
    const bool half = call.instruction->integer.rounding == Rounding::kHalfAway;
    rounded[i] =
        SaturateMantissa(half ? RoundHalfAway(g[i], shift) : RoundPseudoStochastic(g[i], shift));
  }
}

}  // namespace

int GradientBitsFor(const Call& call) {
  const GradientBits& bits = call.context->gradient_bits;
  return call.instruction->attributes.kind == OpKind::kLinear ? bits.linear : bits.conv;
}

absl::Status RunIntegerLoss(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const int64_t samples = call.in_shape(0)[0], classes = call.in_shape(0)[1];
  const bool trains = call.instruction->code == OpCode::kIntegerSoftmaxCrossEntropy;
  const IntegerLogits logits = {call.in<int8_t>(0), samples, classes,
                                TailOfInput(call, 0).exponent};
  int32_t* gradient = trains ? call.Take<int32_t>(samples * classes) : nullptr;
  RUNNEL_RETURN_IF_ERROR(
      IntegerCrossEntropy(logits, call.in<int32_t>(1), gradient, call.out<double>(trains ? 1 : 0)));
  if (!trains) return absl::OkStatus();
  RoundToMantissas(call, call.in_shape(0), 0, samples * classes, gradient, kLossShift, false,
                   nullptr, call.out<int8_t>(0));
  TailOfOutput(call, 0) = {};
  return absl::OkStatus();
}

absl::Status RunAddScaledGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const IntegerLoops& loops = *call.machine.integer;
  const ScaleTail added = TailOfInput(call, 0), before = TailOfOutput(call, 0);
  const bool first = !call.context->accumulate;
  const int64_t exponent = first ? added.exponent : std::max(added.exponent, before.exponent);
  const auto shift = [exponent](int32_t from) {
    return static_cast<int>(std::min<int64_t>(exponent - from, 63));
  };
  const int added_shift = shift(added.exponent), total_shift = first ? 0 : shift(before.exponent);
  const int64_t count = call.out_shape(0).elements();
  int64_t* largest = call.Take<int64_t>((count + kChunk - 1) / kChunk);
  int64_t* total = call.out<int64_t>(0);
  ForEachChunk(call, count, [&](int64_t begin, int64_t end) {
    largest[begin / kChunk] =
        call.inputs[0].buffer->dtype == DType::kInt64
            ? loops.add_shifted_i64(call.in<int64_t>(0) + begin, added_shift, total_shift, first,
                                    end - begin, total + begin)
            : loops.add_shifted_i32(call.in<int32_t>(0) + begin, added_shift, total_shift, first,
                                    end - begin, total + begin);
  });
  TailOfOutput(call, 0) = {
      .exponent = static_cast<int32_t>(exponent),
      .max_abs = *std::max_element(largest, largest + (count + kChunk - 1) / kChunk)};
  return absl::OkStatus();
}

absl::Status RunNitiUpdate(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ScaleTail weight_tail = TailOfInput(call, 0);
  const int bits = BitsOf(TailOfInput(call, 1).max_abs);
  const int shift = std::max(0, bits - GradientBitsFor(call));
  const int64_t count = call.out_shape(0).elements();
  const int8_t* w = call.in<int8_t>(0);
  int8_t* updated = call.out<int8_t>(0);
  const bool wide = call.inputs[1].buffer->dtype == DType::kInt64;
  const bool fast = call.instruction->integer.rounding == Rounding::kPseudoStochastic;
  ForEachChunk(call, count, [&](int64_t begin, int64_t end) {
    if (bits == 0) {
      if (updated != w) std::copy(w + begin, w + end, updated + begin);
    } else if (!wide) {
      int8_t gradient[kChunk];
      RoundNarrow(call, shift, begin, end, gradient);
      call.machine.int8->subtract_saturating(w + begin, gradient, end - begin, updated + begin);
    } else if (fast) {
      call.machine.integer->update_i64(w + begin, call.in<int64_t>(1) + begin, std::min(shift, 62),
                                       end - begin, updated + begin);
    } else {
      UpdateSlowly(call, call.in<int64_t>(1), std::min(shift, 62), begin, end);
    }
  });
  TailOfOutput(call, 0) = weight_tail;
  return absl::OkStatus();
}

}  // namespace runnel::cpu
