#include "kernels/ir/arithmetic/affine_grid.h"

#include <cmath>

#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/code_grid.h"
#include "kernels/ir/arithmetic/code_pairs.h"
#include "proto/base/random.h"

namespace runnel::ref {
namespace {

ValueRange RangeOf(const float* x, int64_t count) {
  ValueRange range;
  for (int64_t i = 0; i < count; ++i) range.Add(x[i]);
  return range.Normal();
}

int BitsOf(const Call& call) { return call.grid().BitsAt(call.context.grid_bits); }

void PutOnGrid(const float* x, int64_t count, const AffineGrid& grid, float* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = AffineValue(x[i], grid);
}

bool HasNan(const float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(x[i])) return true;
  }
  return false;
}

// By the range of the micro-batch, which what is kept follows.
ValueRange TrainingRange(const Call& call, size_t kept_output) {
  const ValueRange range = RangeOf(call.in(0), call.in_shape(0).elements());
  if (call.has_output(kept_output)) {
    float* kept = call.out(kept_output);
    const ValueRange next = NextKeptRange({kept[0], kept[1]}, range);
    kept[0] = next.low;
    kept[1] = next.high;
  }
  return range;
}

ValueRange EvaluationRange(const Call& call) {
  ValueRange range = {0, 0};
  if (call.has_input(1)) range = {call.in(1)[0], call.in(1)[1]};
  return IsSeen(range) ? range : RangeOf(call.in(0), call.in_shape(0).elements());
}

// All of x on one grid.
void StoreCodes(const Call& call, const ValueRange& range) {
  const float* x = call.in(0);
  const int64_t count = call.in_shape(0).elements();
  const AffineGrid grid = AffineGridOf(range, BitsOf(call));
  float* grids = call.out(1);
  grids[0] = static_cast<float>(BitsOf(call));
  StoreCodeGrid(grid, HasNan(x, count), 0, 1, grids);
  for (int64_t i = 0; i < count; ++i)
    call.out<int8_t>(0)[i] =
        static_cast<int8_t>(CodeOfAffine(x[i], 0, grid, CodeCentre(BitsOf(call))));
}

}  // namespace

absl::Status AffineWeight(const Call& call) {
  const int64_t channels = call.grid().of_tensor ? 1 : call.in_shape(0)[0];
  const int64_t size = call.in_shape(0).elements() / channels;
  for (int64_t c = 0; c < channels; ++c) {
    const float* w = call.in(0) + c * size;
    PutOnGrid(w, size, AffineGridOf(RangeOf(w, size), BitsOf(call)), call.out(0) + c * size);
  }
  return absl::OkStatus();
}

absl::Status AffineActivation(const Call& call) {
  PutOnGrid(call.in(0), call.in_shape(0).elements(),
            AffineGridOf(TrainingRange(call, 1), BitsOf(call)), call.out(0));
  return absl::OkStatus();
}

absl::Status AffineActivationEval(const Call& call) {
  PutOnGrid(call.in(0), call.in_shape(0).elements(),
            AffineGridOf(EvaluationRange(call), BitsOf(call)), call.out(0));
  return absl::OkStatus();
}

namespace {

CounterRandom ErrorDraws(const Call& call) {
  return CounterRandom(call.context.run_seed, RandomPurpose::kErrorRounding,
                       static_cast<uint64_t>(call.layer()) * kMaxOpsPerLayer + call.op(),
                       static_cast<uint64_t>(call.context.sequence.value()));
}
float NoiseOf(const CounterRandom& draws, int64_t element) {
  return AffineNoise(draws.Bits(static_cast<uint64_t>(element)) >> 12);
}

}  // namespace

absl::Status AffineError(const Call& call) {
  const CounterRandom draws = ErrorDraws(call);
  const int64_t count = call.in_shape(0).elements();
  const AffineGrid grid = AffineGridOf(RangeOf(call.in(0), count), BitsOf(call));
  for (int64_t i = 0; i < count; ++i)
    call.out(0)[i] = NoisyAffineValue(call.in(0)[i], NoiseOf(draws, i), grid);
  return absl::OkStatus();
}

// Codes lie (channels, kernel..., in).
absl::Status AffineWeightCodes(const Call& call) {
  const int64_t channels = call.in_shape(0)[0], size = call.in_shape(0).elements() / channels;
  const int64_t taps = WeightTaps(call.in_shape(0));
  const int64_t inputs = size / taps, grids = call.grid().of_tensor ? 1 : channels;
  const int64_t of_grid = channels / grids * size;
  float* stored = call.out(1);
  stored[0] = static_cast<float>(BitsOf(call));
  for (int64_t g = 0; g < grids; ++g) {
    const float* w = call.in(0) + g * of_grid;
    const AffineGrid grid = AffineGridOf(RangeOf(w, of_grid), BitsOf(call));
    StoreCodeGrid(grid, HasNan(w, of_grid), g, grids, stored);
    for (int64_t i = 0; i < of_grid; ++i) {
      const int64_t row = i / size, in = i % size / taps, tap = i % taps;
      call.out<int8_t>(0)[g * of_grid + row * size + tap * inputs + in] =
          static_cast<int8_t>(CodeOfAffine(w[i], 0, grid, CodeCentre(BitsOf(call))));
    }
  }
  return absl::OkStatus();
}

absl::Status AffineActivationCodes(const Call& call) {
  StoreCodes(call, TrainingRange(call, 2));
  return absl::OkStatus();
}

absl::Status AffineActivationCodesEval(const Call& call) {
  StoreCodes(call, EvaluationRange(call));
  return absl::OkStatus();
}

absl::Status PackCodes(const Call& call) {
  OverPairs(call.in_shape(0).elements(), [&](int64_t at, int64_t size, int64_t byte) {
    PackPairs(call.in<int8_t>(0) + at, size, call.out<uint8_t>(0) + byte);
  });
  return absl::OkStatus();
}

absl::Status UnpackCodes(const Call& call) {
  OverPairs(call.out_shape(0).elements(), [&](int64_t at, int64_t size, int64_t byte) {
    UnpackPairs(call.in<uint8_t>(0) + byte, size, call.out<int8_t>(0) + at);
  });
  return absl::OkStatus();
}

absl::Status AffineErrorCodes(const Call& call) {
  const CounterRandom draws = ErrorDraws(call);
  const float* dy = call.in(0);
  const int64_t count = call.in_shape(0).elements();
  const int bits = BitsOf(call);
  const AffineGrid grid = AffineGridOf(RangeOf(dy, count), bits);
  float* stored = call.out(1);
  stored[0] = static_cast<float>(bits);
  StoreCodeGrid(grid, HasNan(dy, count), 0, 1, stored);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t code = CodeOfAffine(dy[i], NoiseOf(draws, i), grid, CodeCentre(bits));
    call.out<int8_t>(0)[i] = IsWide(bits) ? UpperCode(code) : static_cast<int8_t>(code);
    if (IsWide(bits)) call.out<int8_t>(2)[i] = LowerCode(code);
  }
  return absl::OkStatus();
}

}  // namespace runnel::ref
