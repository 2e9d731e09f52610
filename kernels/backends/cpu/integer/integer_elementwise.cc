// Quantising, rescaling and the element-wise operators of integer recipes.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "kernels/backends/cpu/integer/integer_kernels.h"
#include "kernels/ir/arithmetic/integer_math.h"
#include "proto/base/random.h"
#include "proto/base/tensor/quantize.h"

namespace runnel::cpu {
namespace {

// Elements a thread takes at once: its loads and stores stay in the cache.
constexpr int64_t kChunk = 16384;

// Calls body(begin, end) over all elements, in chunks that do not depend on the thread count.
template <typename Body>
void ForEachChunk(const Call& call, int64_t count, const Body& body) {
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  ParallelFor(call.machine, chunks, [&](int, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) body(i * kChunk, std::min(count, (i + 1) * kChunk));
  });
}

// The largest value of body(begin, end) over all chunks.
template <typename Body>
int64_t MaxOverChunks(const Call& call, int64_t count, const Body& body) {
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  int64_t* largest = call.Take<int64_t>(std::max<int64_t>(chunks, 1));
  largest[0] = 0;
  ForEachChunk(call, count,
               [&](int64_t begin, int64_t end) { largest[begin / kChunk] = body(begin, end); });
  return chunks == 0 ? 0 : *std::max_element(largest, largest + chunks);
}

CounterRandom RandomOf(const Call& call, RandomPurpose purpose) {
  const Instruction& instruction = *call.instruction;
  return CounterRandom(call.context->run_seed, purpose,
                       static_cast<uint64_t>(instruction.layer) * kMaxOpsPerLayer + instruction.op,
                       static_cast<uint64_t>(call.context->sequence.value()));
}

}  // namespace

void RoundToMantissas(const Call& call, const Shape& shape, int64_t first, int64_t count,
                      const int32_t* values, int shift, bool relu, const int8_t* mask,
                      int8_t* out) {
  const Int8Kernels& kernels = *call.machine.int8;
  const Rounding rounding = call.instruction->integer.rounding;
  if (rounding != Rounding::kStochastic || shift == 0) {
    const auto rescale = rounding == Rounding::kHalfAway ? kernels.rescale_half_away
                                                         : kernels.rescale_pseudo_stochastic;
    return rescale(values, count, shift, relu, mask, out);
  }
  const CounterRandom random = RandomOf(call, RandomPurpose::kRounding);
  for (int64_t i = 0; i < count; ++i) {
    const auto element = static_cast<uint64_t>(LogicalIndex(call, shape, first + i));
    const uint64_t draw = random.Bits(element) >> (32 - shift);
    const int8_t value = SaturateMantissa(RoundStochastic(values[i], shift, draw));
    const bool zero = (relu && value < 0) || (mask != nullptr && mask[i] <= 0);
    out[i] = zero ? int8_t{0} : value;
  }
}

absl::Status RunQuantize(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const IntegerLoops& loops = *call.machine.integer;
  const int64_t count = call.out_shape(0).elements();
  const float* x = call.in(0);
  int8_t* y = call.out<int8_t>(0);
  const float largest = std::bit_cast<float>(
      static_cast<uint32_t>(MaxOverChunks(call, count, [&](int64_t begin, int64_t end) {
        return int64_t{loops.largest_magnitude(x + begin, end - begin)};
      })));
  if (largest == 0) {
    std::fill_n(y, count, int8_t{0});
    TailOfOutput(call, 0) = {};
    return absl::OkStatus();
  }
  const int32_t exponent = CeilLog2(largest) - 7;
  const double factor = std::ldexp(1.0, -exponent);
  ForEachChunk(call, count, [&](int64_t begin, int64_t end) {
    if (call.instruction->integer.power_of_two_input) {
      loops.quantize_by_factor(x + begin, end - begin, factor, y + begin);
    } else {
      loops.quantize_by_largest(x + begin, end - begin, largest, y + begin);
    }
  });
  TailOfOutput(call, 0) = {.exponent = exponent};
  return absl::OkStatus();
}

absl::Status RunRescale(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ScaleTail from = TailOfInput(call, 0);
  const IntegerRule& rule = call.instruction->integer;
  const int shift = RescaleShift(from.max_abs, rule.promote_one_to_two);
  const int8_t* mask = call.inputs.size() > 1 ? call.in<int8_t>(1) : nullptr;
  ForEachChunk(call, call.out_shape(0).elements(), [&](int64_t begin, int64_t end) {
    RoundToMantissas(call, call.out_shape(0), begin, end - begin, call.in<int32_t>(0) + begin,
                     shift, rule.relu, mask == nullptr ? nullptr : mask + begin,
                     call.out<int8_t>(0) + begin);
  });
  TailOfOutput(call, 0) = {.exponent = from.exponent + shift};
  return absl::OkStatus();
}

absl::Status RunInt8Relu(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ScaleTail tail = TailOfInput(call, 0);
  ForEachChunk(call, call.out_shape(0).elements(), [&](int64_t begin, int64_t end) {
    call.machine.integer->relu(call.in<int8_t>(0) + begin, end - begin,
                               call.out<int8_t>(0) + begin);
  });
  TailOfOutput(call, 0) = {.exponent = tail.exponent};
  return absl::OkStatus();
}

absl::Status RunInt8ReluGradient(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ScaleTail tail = TailOfInput(call, 0);
  ForEachChunk(call, call.out_shape(0).elements(), [&](int64_t begin, int64_t end) {
    call.machine.integer->relu_gradient(call.in<int8_t>(0) + begin, call.in<int8_t>(1) + begin,
                                        end - begin, call.out<int8_t>(0) + begin);
  });
  TailOfOutput(call, 0) = {.exponent = tail.exponent};
  return absl::OkStatus();
}

absl::Status RunInt8Dropout(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const double rate = call.instruction->attributes.rate;
  const bool forward = call.instruction->code == OpCode::kInt8DropoutForward;
  const CounterRandom random = RandomOf(call, RandomPurpose::kDropout);
  const int8_t* x = call.in<int8_t>(0);
  int8_t* y = call.out<int8_t>(0);
  const ScaleTail tail = TailOfInput(call, 0);
  ForEachChunk(call, call.out_shape(0).elements(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t element = LogicalIndex(call, call.out_shape(0), i);
      y[i] = random.Uniform(static_cast<uint64_t>(element)) >= rate ? x[i] : int8_t{0};
    }
  });
  TailOfOutput(call, 0) = {.exponent = tail.exponent + (forward && rate > 0 ? 1 : 0)};
  return absl::OkStatus();
}

namespace {

// One operand of a residual add brought to the common exponent: factor * x, or x rounded by shift.
struct Aligned {
  const int8_t* values = nullptr;
  int32_t factor = 1;
};

// `above`: how far the operand's exponent lies above the other's.
Aligned Align(const Call& call, const int8_t* x, int64_t above) {
  if (above == 1) return {x, 2};
  if (above >= -1) return {x, 1};
  const int64_t count = call.out_shape(0).elements();
  const int shift = static_cast<int>(std::min<int64_t>(-above, 31));
  int32_t* wide = call.Take<int32_t>(count);
  int8_t* rounded = call.Take<int8_t>(count);
  ForEachChunk(call, count, [&](int64_t begin, int64_t end) {
    std::copy(x + begin, x + end, wide + begin);
    RoundToMantissas(call, call.out_shape(0), begin, end - begin, wide + begin, shift, false,
                     nullptr, rounded + begin);
  });
  return {rounded, 1};
}

}  // namespace

absl::Status RunInt8Add(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const IntegerLoops& loops = *call.machine.integer;
  const int64_t count = call.out_shape(0).elements();
  const int8_t *a = call.in<int8_t>(0), *b = call.in<int8_t>(1);
  int64_t e_a = TailOfInput(call, 0).exponent, e_b = TailOfInput(call, 1).exponent;
  const auto is_zero = [&](const int8_t* x) {
    return MaxOverChunks(call, count, [&](int64_t begin, int64_t end) {
             return loops.max_abs_i8(x + begin, end - begin);
           }) == 0;
  };
  if (e_a != e_b) {
    if (is_zero(a)) e_a = e_b;
    if (is_zero(b)) e_b = e_a;
  }
  const Aligned first = Align(call, a, e_a - e_b), second = Align(call, b, e_b - e_a);
  int32_t* sums = call.Take<int32_t>(count);
  const int64_t largest = MaxOverChunks(call, count, [&](int64_t begin, int64_t end) {
    return loops.weighted_sum(first.values + begin, first.factor, second.values + begin,
                              second.factor, end - begin, sums + begin);
  });
  const int shift = largest > kMantissaMax ? 2 : 0;
  ForEachChunk(call, count, [&](int64_t begin, int64_t end) {
    RoundToMantissas(call, call.out_shape(0), begin, end - begin, sums + begin, shift, false,
                     nullptr, call.out<int8_t>(0) + begin);
  });
  const int64_t exponent = std::abs(e_a - e_b) == 1 ? std::min(e_a, e_b) : std::max(e_a, e_b);
  TailOfOutput(call, 0) = {.exponent = static_cast<int32_t>(exponent + shift)};
  return absl::OkStatus();
}

}  // namespace runnel::cpu
