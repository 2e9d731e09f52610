// Tensors become codes of symmetric grids (kernels/ir/arithmetic/symmetric_grid.h).

#include <algorithm>

#include "kernels/backends/cpu/fp32/error_draws.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"

namespace runnel::cpu {
namespace {

int64_t ElementsOf(const Call& call) { return call.in_shape(0).elements(); }

float LargestIn(const Call& call) { return LargestOf(WholeRange(call)); }

// Where the codes of one call go.
class SymmetricCoder {
 public:
  SymmetricCoder(const Call& call, const SymmetricBounds& bounds)
      : call_(call),
        bounds_(bounds),
        unit_(SymmetricUnit(bounds.clip())),
        nans_(call.Take<bool>(call.machine.workers())) {
    std::fill_n(nans_, call.machine.workers(), false);
  }

  void Nearest() {
    ParallelFor(call_.machine, ElementsOf(call_), [&](int worker, int64_t begin, int64_t end) {
      Code(worker, begin, end - begin, nullptr, call_.out<int8_t>(0) + begin);
    });
    Store();
  }
  void ByErrorDraws() {
    fp32::OverSampleDraws(call_, [&](int worker, int64_t at, int64_t size, const uint32_t* draw) {
      Code(worker, at, size, draw, call_.out<int8_t>(0) + at);
    });
    Store();
  }
  // As the instruction's rule says.
  void ByRule() {
    if (!Draws()) return Nearest();
    fp32::OverRoundingDraws(call_, call_.instruction->grid.draws,
                            [&](int worker, int64_t at, int64_t size, const uint32_t* draw) {
                              Code(worker, at, size, draw, call_.out<int8_t>(0) + at);
                            });
    Store();
  }
  // Values (rows, in, taps) to codes (rows, taps, in), as the rule says.
  void WeightsByRule() {
    const int64_t rows = call_.in_shape(0)[0], size = ElementsOf(call_) / rows;
    auto* codes = call_.Take<int8_t>(call_.machine.workers() * size);
    const auto code_row = [&](int worker, int64_t at, int64_t, const uint32_t* draw) {
      Code(worker, at, size, draw, codes + worker * size);
      TurnRow(codes + worker * size, size, call_.out<int8_t>(0) + at);
    };
    if (Draws()) {
      fp32::OverRoundingDraws(call_, call_.instruction->grid.draws, code_row);
    } else {
      ParallelFor(call_.machine, rows, [&](int worker, int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) code_row(worker, row * size, size, nullptr);
      });
    }
    Store();
  }

 private:
  bool Draws() const {
    const GridRule& grid = call_.instruction->grid;
    return grid.draws != 0 && !grid.to_nearest;
  }
  void Code(int worker, int64_t at, int64_t size, const uint32_t* draw, int8_t* codes) {
    nans_[worker] |=
        call_.machine.grids->symmetric_codes(call_.in(0) + at, draw, size, bounds_, unit_, codes);
  }
  void TurnRow(const int8_t* row, int64_t size, int8_t* turned) const {
    const int64_t taps = WeightTaps(call_.in_shape(0)), inputs = size / taps;
    for (int64_t in = 0; in < inputs; ++in) {
      for (int64_t tap = 0; tap < taps; ++tap) turned[tap * inputs + in] = row[in * taps + tap];
    }
  }
  void Store() const {
    StoreSymmetricGrid(
        unit_, std::any_of(nans_, nans_ + call_.machine.workers(), [](bool nan) { return nan; }),
        call_.out(1));
  }

  const Call& call_;
  const SymmetricBounds bounds_;
  const float unit_;
  bool* const nans_;  // by worker
};

// Element i of the logical (N, C, spatial) order.
class LogicalOrder {
 public:
  explicit LogicalOrder(const Call& call)
      : channels_(call.channels_last ? ImageOf(call.in_shape(0)).c : 1),
        size_(ElementsOf(call) / call.in_shape(0)[0]),
        positions_(size_ / channels_) {}

  int64_t PlaceOf(int64_t i) const {
    const int64_t n = i / size_, rest = i % size_;
    return n * size_ + rest % positions_ * channels_ + rest / positions_;
  }

 private:
  const int64_t channels_, size_, positions_;
};

}  // namespace

ValueRange WholeRange(const Call& call, size_t input) {
  const int workers = call.machine.workers();
  auto* ranges = call.Take<ValueRange>(workers);
  std::fill_n(ranges, workers, ValueRange());
  const int64_t count = call.in_shape(input).elements();
  ParallelFor(call.machine, count, [&](int worker, int64_t begin, int64_t end) {
    ranges[worker].Add(call.machine.grids->range(call.in(input) + begin, end - begin));
  });
  for (int i = 1; i < workers; ++i) ranges[0].Add(ranges[i]);
  return ranges[0];
}

absl::Status SymmetricWeightCodes(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  SymmetricCoder(call, BoundsOfClip(LargestIn(call))).WeightsByRule();
  return absl::OkStatus();
}

absl::Status SymmetricActivationCodes(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const float clip = LargestIn(call);
  KeepRange(call, {-clip, clip});
  SymmetricCoder(call, BoundsOfClip(clip)).ByRule();
  return absl::OkStatus();
}

absl::Status SymmetricActivationCodesEval(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const ValueRange kept = KeptRange(call);
  SymmetricCoder(call, BoundsOfClip(IsSeen(kept) ? kept.high : LargestIn(call))).Nearest();
  return absl::OkStatus();
}

absl::Status SymmetricErrorCodes(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  SymmetricCoder(call, ShareOfRange(WholeRange(call), call.instruction->grid.clip)).Nearest();
  return absl::OkStatus();
}

absl::Status ClippedErrorCodes(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const int64_t stride = SampleStride(ElementsOf(call));
  const int64_t count = (ElementsOf(call) + stride - 1) / stride;
  auto* sampled = call.Take<float>(count);
  const LogicalOrder order(call);
  for (int64_t i = 0; i < count; ++i) sampled[i] = call.in(0)[order.PlaceOf(i * stride)];
  const ClipChoice choice = ChooseClip(sampled, count, LargestIn(call));
  call.out(2)[0] = choice.deviation;
  SymmetricCoder(call, BoundsOfClip(choice.clip)).ByErrorDraws();
  return absl::OkStatus();
}

}  // namespace runnel::cpu
