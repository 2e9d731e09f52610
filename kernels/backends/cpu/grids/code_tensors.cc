// Tensors become codes (kernels/ir/arithmetic/code_grid.h).

#include <algorithm>

#include "kernels/backends/cpu/fp32/error_draws.h"
#include "kernels/backends/cpu/fp32/kernel_table.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"
#include "kernels/ir/arithmetic/code_pairs.h"

namespace runnel::cpu {
namespace {

constexpr int64_t kChunk = 1 << 14;  // elements of one thread at least

int64_t ChunksOf(int64_t count) { return (count + kChunk - 1) / kChunk; }
// body(chunk, begin, size) of each chunk of `count` elements.
template <typename Body>
void OverChunks(const Call& call, int64_t count, const Body& body) {
  ParallelFor(call.machine, ChunksOf(count), [&](int, int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk)
      body(chunk, chunk * kChunk, std::min(count - chunk * kChunk, kChunk));
  });
}

ValueRange RangeOf(const Call& call, const float* x, int64_t count) {
  auto* parts = call.Take<ValueRange>(ChunksOf(count));
  OverChunks(call, count, [&](int64_t chunk, int64_t at, int64_t size) {
    parts[chunk] = call.machine.grids->range(x + at, size);
  });
  ValueRange range;
  for (int64_t chunk = 0; chunk < ChunksOf(count); ++chunk) range.Add(parts[chunk]);
  return range.Normal();
}

// The range of a micro-batch, in training; evaluation has the kept one, if there is one.
ValueRange ActivationRange(const Call& call) {
  const int64_t count = call.in_shape(0).elements();
  if (call.instruction->code == OpCode::kAffineActivationCodesEval) {
    const ValueRange kept = KeptRange(call);
    return IsSeen(kept) ? kept : RangeOf(call, call.in(0), count);
  }
  const ValueRange range = RangeOf(call, call.in(0), count);
  KeepRange(call, range);
  return range;
}

// The codes of weights, as they are made.
class WeightCoder {
 public:
  explicit WeightCoder(const Call& call)
      : call_(call),
        channels_(call.in_shape(0)[0]),
        size_(call.in_shape(0).elements() / channels_),
        taps_(WeightTaps(call.in_shape(0))),
        turned_(call.Take<float>(call.machine.workers() * size_)),
        nans_(call.Take<bool>(channels_)) {}

  void Run() {
    const bool one = call_.instruction->grid.of_tensor;
    const int bits = BitsOf(call_);
    const AffineGrid whole =
        one ? AffineGridOf(RangeOf(call_, call_.in(0), channels_ * size_), bits) : AffineGrid();
    call_.out(1)[0] = static_cast<float>(bits);
    ParallelFor(call_.machine, channels_, [&](int worker, int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const AffineGrid grid = one ? whole : AffineGridOf(RangeOfRow(c), bits);
        Code(worker, c, grid);
        if (!one) StoreCodeGrid(grid, nans_[c], c, channels_, call_.out(1));
      }
    });
    if (one) StoreGrid(call_, whole, nans_, channels_);
  }

 private:
  const float* Row(int64_t channel) const { return call_.in(0) + channel * size_; }
  ValueRange RangeOfRow(int64_t channel) const {
    return call_.machine.grids->range(Row(channel), size_).Normal();
  }
  // (in, kernel...) to (kernel..., in).
  void Code(int worker, int64_t channel, const AffineGrid& grid) {
    const float* row = Row(channel);
    if (taps_ > 1) {
      float* turned = turned_ + worker * size_;
      const int64_t inputs = size_ / taps_;
      call_.kernels().transpose(row, inputs, taps_, taps_, turned, inputs);
      row = turned;
    }
    nans_[channel] =
        call_.machine.grids->codes(row, nullptr, size_, grid, CodeCentre(BitsOf(call_)),
                                   call_.out<int8_t>(0) + channel * size_, nullptr);
  }

  const Call& call_;
  const int64_t channels_, size_, taps_;
  float* const turned_;  // by worker
  bool* const nans_;     // by channel
};

}  // namespace

int BitsOf(const Call& call) { return call.instruction->grid.BitsAt(call.context->grid_bits); }

ValueRange KeptRange(const Call& codes) {
  if (codes.inputs.size() < 2) return {0, 0};
  return {codes.in(1)[0], codes.in(1)[1]};
}

void KeepRange(const Call& codes, const ValueRange& range) {
  if (codes.outputs.size() < 3) return;
  float* kept = codes.out(2);
  const ValueRange next = NextKeptRange({kept[0], kept[1]}, range);
  kept[0] = next.low;
  kept[1] = next.high;
}

void StoreGrid(const Call& codes, const AffineGrid& grid, const bool* nans, int64_t count) {
  codes.out(1)[0] = static_cast<float>(BitsOf(codes));
  const bool has_nan = std::any_of(nans, nans + count, [](bool nan) { return nan; });
  StoreCodeGrid(grid, has_nan, 0, 1, codes.out(1));
}

absl::Status AffineWeightCodes(absl::Span<const Call> calls) {
  WeightCoder(calls[0]).Run();
  return absl::OkStatus();
}

absl::Status AffineActivationCodes(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const AffineGrid grid = AffineGridOf(ActivationRange(call), BitsOf(call));
  const int64_t count = call.in_shape(0).elements();
  bool* nans = call.Take<bool>(ChunksOf(count));
  OverChunks(call, count, [&](int64_t chunk, int64_t at, int64_t size) {
    nans[chunk] =
        call.machine.grids->codes(call.in(0) + at, nullptr, size, grid, CodeCentre(BitsOf(call)),
                                  call.out<int8_t>(0) + at, nullptr);
  });
  StoreGrid(call, grid, nans, ChunksOf(count));
  return absl::OkStatus();
}

absl::Status PackCodes(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  static_assert(kChunk % kPairedAtOnce == 0);
  OverChunks(call, call.in_shape(0).elements(), [&](int64_t, int64_t begin, int64_t count) {
    OverPairs(count, [&](int64_t at, int64_t size, int64_t byte) {
      const auto* group = call.in<int8_t>(0) + begin + at;
      auto* packed = call.out<uint8_t>(0) + begin / 2 + byte;
      size == kPairedAtOnce ? call.machine.grids->pack(group, packed)
                            : PackPairs(group, size, packed);
    });
  });
  return absl::OkStatus();
}

absl::Status UnpackCodes(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  OverChunks(call, call.out_shape(0).elements(), [&](int64_t, int64_t begin, int64_t count) {
    OverPairs(count, [&](int64_t at, int64_t size, int64_t byte) {
      const auto* group = call.in<uint8_t>(0) + begin / 2 + byte;
      auto* codes = call.out<int8_t>(0) + begin + at;
      size == kPairedAtOnce ? call.machine.grids->unpack(group, codes)
                            : UnpackPairs(group, size, codes);
    });
  });
  return absl::OkStatus();
}

absl::Status AffineErrorCodes(absl::Span<const Call> calls) {
  const Call& call = calls[0];
  const int bits = BitsOf(call);
  const int64_t samples = call.in_shape(0)[0], count = call.in_shape(0).elements();
  const AffineGrid grid = AffineGridOf(RangeOf(call, call.in(0), count), bits);
  bool* nans = call.Take<bool>(samples);
  int8_t* low = IsWide(bits) ? call.out<int8_t>(2) : nullptr;
  fp32::OverSampleDraws(call, [&](int, int64_t at, int64_t size, const uint32_t* draw) {
    nans[at / size] =
        call.machine.grids->codes(call.in(0) + at, draw, size, grid, CodeCentre(bits),
                                  call.out<int8_t>(0) + at, low == nullptr ? nullptr : low + at);
  });
  StoreGrid(call, grid, nans, samples);
  return absl::OkStatus();
}

absl::Span<const KernelRow> GridKernels() {
  static constexpr KernelRow kRows[] = {
      {OpCode::kAffineWeightCodes, LayoutRule::kRowMajor, AffineWeightCodes},
      {OpCode::kAffineActivationCodes, LayoutRule::kChannelsLast, AffineActivationCodes},
      {OpCode::kAffineActivationCodesEval, LayoutRule::kChannelsLast, AffineActivationCodes},
      {OpCode::kPackCodes, LayoutRule::kChannelsLast, PackCodes},
      {OpCode::kUnpackCodes, LayoutRule::kChannelsLast, UnpackCodes},
      {OpCode::kAffineErrorCodes, LayoutRule::kChannelsLast, AffineErrorCodes},
      {OpCode::kSymmetricWeightCodes, LayoutRule::kRowMajor, SymmetricWeightCodes},
      {OpCode::kSymmetricActivationCodes, LayoutRule::kChannelsLast, SymmetricActivationCodes},
      {OpCode::kSymmetricActivationCodesEval, LayoutRule::kChannelsLast,
       SymmetricActivationCodesEval},
      {OpCode::kSymmetricErrorCodes, LayoutRule::kChannelsLast, SymmetricErrorCodes},
      {OpCode::kClippedErrorCodes, LayoutRule::kChannelsLast, ClippedErrorCodes},
      {OpCode::kCodesForward, LayoutRule::kChannelsLast, CodesForward},
      {OpCode::kCodesInputGradient, LayoutRule::kChannelsLast, CodesInputGradient},
      {OpCode::kCodesWeightGradient, LayoutRule::kChannelsLast, CodesWeightGradient},
      {OpCode::kAdaptWidth, LayoutRule::kRowMajor, AdaptWidth},
      {OpCode::kFixedPoint, LayoutRule::kSame, FixedPoint},
      {OpCode::kShiftError, LayoutRule::kSame, ShiftError},
      {OpCode::kFlagError, LayoutRule::kSame, FlagError},
      {OpCode::kShiftedReluInputGradient, LayoutRule::kSame, ShiftedReluInputGradient},
      {OpCode::kFixedNormForward, LayoutRule::kChannelsLast, FixedNormForward},
      {OpCode::kFixedNormEval, LayoutRule::kChannelsLast, FixedNormEval},
      {OpCode::kFixedNormInputGradient, LayoutRule::kChannelsLast, FixedNormInputGradient},
      {OpCode::kRangeNormForward, LayoutRule::kChannelsLast, RangeNormForward},
      {OpCode::kRangeNormEval, LayoutRule::kChannelsLast, RangeNormEval},
      {OpCode::kRangeNormInputGradient, LayoutRule::kChannelsLast, RangeNormInputGradient},
      {OpCode::kMultiLevelWeight, LayoutRule::kRowMajor, PutOnLevels},
      {OpCode::kMultiLevelActivation, LayoutRule::kRowMajor, PutOnLevels},
      {OpCode::kMultiLevelError, LayoutRule::kRowMajor, PutOnLevels},
      {OpCode::kChunkedConvForward, LayoutRule::kRowMajor, ChunkedForward},
      {OpCode::kChunkedConvInputGradient, LayoutRule::kRowMajor, ChunkedInputGradient},
      {OpCode::kChunkedConvWeightGradient, LayoutRule::kRowMajor, ChunkedWeightGradient},
      {OpCode::kChunkedLinearForward, LayoutRule::kRowMajor, ChunkedForward},
      {OpCode::kChunkedLinearInputGradient, LayoutRule::kRowMajor, ChunkedInputGradient},
      {OpCode::kChunkedLinearWeightGradient, LayoutRule::kRowMajor, ChunkedWeightGradient},
  };
  return kRows;
}

}  // namespace runnel::cpu
