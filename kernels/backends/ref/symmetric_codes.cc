// Tensors become codes of symmetric grids (kernels/ir/arithmetic/symmetric_grid.h, code_grid.h).

#include <cmath>
#include <optional>

#include "kernels/backends/host/draws.h"
#include "kernels/backends/ref/ref_kernels.h"
#include "kernels/ir/arithmetic/code_grid.h"
#include "kernels/ir/arithmetic/symmetric_grid.h"

namespace runnel::ref {
namespace {

// The draws of a grid that rounds by the draws of its instruction's rule; else none.
std::optional<host::Draws> DrawsOfRule(const Call& call) {
  const GridRule& grid = call.grid();
  if (grid.draws == 0 || grid.to_nearest) return std::nullopt;
  return host::Draws(call.instruction(), call.context, RandomPurpose::kRounding, grid.draws);
}

// Codes lie (rows, taps, rest) of values (rows, rest, taps).
void StoreSymmetricCodes(const Call& call, const SymmetricBounds& bounds,
                         std::optional<host::Draws> draws, int64_t taps = 1) {
  const float* x = call.in(0);
  const int64_t count = call.in_shape(0).elements(), size = count / call.in_shape(0)[0];
  const float unit = SymmetricUnit(bounds.clip());
  bool has_nan = false;
  for (int64_t i = 0; i < count; ++i) {
    const float v = SymmetricQuotient(x[i], bounds, unit);
    const float code = draws ? NoisySymmetricCode(v, draws->Next()) : SymmetricCode(v);
    const int64_t row = i / size, rest = i % size / taps, tap = i % taps;
    call.out<int8_t>(0)[row * size + tap * (size / taps) + rest] = static_cast<int8_t>(code);
    has_nan = has_nan || std::isnan(x[i]);
  }
  StoreSymmetricGrid(unit, has_nan, call.out(1));
}

float LargestOf(const Call& call) {
  return LargestMagnitude(call.in(0), call.in_shape(0).elements());
}

}  // namespace

absl::Status SymmetricWeightCodes(const Call& call) {
  StoreSymmetricCodes(call, BoundsOfClip(LargestOf(call)), DrawsOfRule(call),
                      WeightTaps(call.in_shape(0)));
  return absl::OkStatus();
}

absl::Status SymmetricActivationCodes(const Call& call) {
  const float clip = LargestOf(call);
  if (call.has_output(2)) {
    float* kept = call.out(2);
    const ValueRange next = NextKeptRange({kept[0], kept[1]}, {-clip, clip});
    kept[0] = next.low;
    kept[1] = next.high;
  }
  StoreSymmetricCodes(call, BoundsOfClip(clip), DrawsOfRule(call));
  return absl::OkStatus();
}

absl::Status SymmetricActivationCodesEval(const Call& call) {
  const bool is_seen = call.has_input(1) && IsSeen({call.in(1)[0], call.in(1)[1]});
  StoreSymmetricCodes(call, BoundsOfClip(is_seen ? call.in(1)[1] : LargestOf(call)), std::nullopt);
  return absl::OkStatus();
}

absl::Status SymmetricErrorCodes(const Call& call) {
  ValueRange range;
  for (int64_t i = 0; i < call.in_shape(0).elements(); ++i) range.Add(call.in(0)[i]);
  StoreSymmetricCodes(call, ShareOfRange(range, call.grid().clip), std::nullopt);
  return absl::OkStatus();
}

absl::Status ClippedErrorCodes(const Call& call) {
  const ClipChoice choice = ChooseClip(call.in(0), call.in_shape(0).elements());
  *call.out(2) = choice.deviation;
  StoreSymmetricCodes(call, BoundsOfClip(choice.clip),
                      host::Draws(call.instruction(), call.context, RandomPurpose::kErrorRounding));
  return absl::OkStatus();
}

}  // namespace runnel::ref
