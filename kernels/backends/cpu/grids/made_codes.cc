// Codes of what a batch normalisation or its gradient makes. The values go through memory only where
// somebody else reads them; else they are made once for their range and once for their codes.

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/functional/function_ref.h"
#include "kernels/backends/cpu/fp32/batch_norm.h"
#include "kernels/backends/cpu/fp32/error_draws.h"
#include "kernels/backends/cpu/grids/grid_kernels.h"

namespace runnel::cpu {
namespace {

using fp32::Normalisation;
using fp32::RowSource;

constexpr int64_t kBlockFloats = 1 << 12;  // of made values, for the nearest cache

// make(row, count, to): rows of values.
using MakeRowsFn = absl::FunctionRef<void(int64_t row, int64_t count, float* to)>;

// Rows of values of one call, made block by block.
class MadeRows {
 public:
  // codes: whose input the values are. kept: where they go; or null.
  MadeRows(const Call& codes, int64_t channels, MakeRowsFn make, float* kept)
      : codes_(codes),
        channels_(channels),
        make_(make),
        kept_(kept),
        rows_(codes.in_shape(0).elements() / channels),
        block_rows_(std::max<int64_t>(1, kBlockFloats / channels)),
        block_(codes.Take<float>(codes.machine.workers() * block_rows_ * channels)) {}

  // body(worker, values, at, count): `count` values from element `at` on.
  template <typename Body>
  void OverBlocks(const Body& body) const {
    const int64_t blocks = (rows_ + block_rows_ - 1) / block_rows_;
    ParallelFor(codes_.machine, blocks, [&](int worker, int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const int64_t row = b * block_rows_, count = std::min(block_rows_, rows_ - row);
        float* to =
            kept_ != nullptr ? kept_ + row * channels_ : block_ + worker * block_rows_ * channels_;
        make_(row, count, to);
        body(worker, to, row * channels_, count * channels_);
      }
    });
  }

  ValueRange Range() const {
    const int workers = codes_.machine.workers();
    auto* ranges = codes_.Take<ValueRange>(workers);
    std::fill_n(ranges, workers, ValueRange());
    OverBlocks([&](int worker, const float* values, int64_t, int64_t count) {
      ranges[worker].Add(codes_.machine.grids->range(values, count));
    });
    for (int i = 1; i < workers; ++i) ranges[0].Add(ranges[i]);
    return ranges[0].Normal();
  }

 private:
  const Call& codes_;
  const int64_t channels_;
  const MakeRowsFn make_;
  float* const kept_;
  const int64_t rows_, block_rows_;
  float* const block_;  // by worker
};

// The ends of each channel of what a batch normalisation reads.
class ChannelEnds {
 public:
  ChannelEnds(const Call& norm, int64_t channels)
      : channels_(channels),
        workers_(norm.machine.workers()),
        loops_(*norm.machine.grids),
        ends_(norm.Take<float>(2 * workers_ * channels)) {
    for (int worker = 0; worker < workers_; ++worker) {
      std::fill_n(Low(worker), channels_, ValueRange().low);
      std::fill_n(High(worker), channels_, ValueRange().high);
    }
  }

  void Add(int worker, const float* x, int64_t rows) {
    loops_.extremes(x, rows, channels_, Low(worker), High(worker));
  }

  // Of the normalised values: a channel's ends become ends, since none of the roundings on the way
  // changes an order. Nothing where there are values without an order.
  std::optional<ValueRange> RangeOf(const Call& norm, const Normalisation& n) {
    for (int worker = 1; worker < workers_; ++worker) {
      Add(0, Low(worker), 1);
      Add(0, High(worker), 1);
    }
    for (int64_t c = 0; c < channels_; ++c) {
      if (!std::isfinite(Low(0)[c]) || !std::isfinite(High(0)[c]) || !std::isfinite(n.factor[c]) ||
          !std::isfinite(n.offset[c]))
        return std::nullopt;
    }
    ValueRange range;
    for (float* ends : {Low(0), High(0)}) {
      norm.kernels().normalise(ends, 1, channels_, n, ends);
      range.Add(loops_.range(ends, channels_));
    }
    return range.Normal();
  }

 private:
  float* Low(int worker) const { return ends_ + 2 * worker * channels_; }
  float* High(int worker) const { return Low(worker) + channels_; }

  const int64_t channels_;
  const int workers_;
  const GridLoops& loops_;
  float* const ends_;  // by worker: low, high
};

bool* NansOf(const Call& codes) {
  bool* nans = codes.Take<bool>(codes.machine.workers());
  std::fill_n(nans, codes.machine.workers(), false);
  return nans;
}

AffineGrid ActivationGrid(const Call& codes, const ValueRange& range) {
  if (codes.instruction->code == OpCode::kAffineActivationCodes) KeepRange(codes, range);
  return AffineGridOf(range, BitsOf(codes));
}

void StoreActivationCodes(const Call& codes, const MadeRows& values, const ValueRange& range) {
  const AffineGrid grid = ActivationGrid(codes, range);
  const int32_t centre = CodeCentre(BitsOf(codes));
  bool* nans = NansOf(codes);
  values.OverBlocks([&](int worker, const float* x, int64_t at, int64_t count) {
    nans[worker] |= codes.machine.grids->codes(x, nullptr, count, grid, centre,
                                               codes.out<int8_t>(0) + at, nullptr);
  });
  StoreGrid(codes, grid, nans, codes.machine.workers());
}

// Of values in memory.
void StoreActivationCodes(const Call& codes, const float* x, const ValueRange& range) {
  const AffineGrid grid = ActivationGrid(codes, range);
  const int32_t centre = CodeCentre(BitsOf(codes));
  const int64_t count = codes.in_shape(0).elements();
  bool* nans = NansOf(codes);
  ParallelFor(codes.machine, count, [&](int worker, int64_t begin, int64_t end) {
    nans[worker] |= codes.machine.grids->codes(x + begin, nullptr, end - begin, grid, centre,
                                               codes.out<int8_t>(0) + begin, nullptr);
  });
  StoreGrid(codes, grid, nans, codes.machine.workers());
}

// What evaluation has from training; else nothing.
std::optional<ValueRange> RangeBefore(const Call& codes) {
  if (codes.instruction->code == OpCode::kAffineActivationCodes || !IsSeen(KeptRange(codes)))
    return std::nullopt;
  return KeptRange(codes);
}

// values(worker, at, size): a sample's, in memory.
template <typename Values>
void StoreErrorCodes(const Call& codes, const ValueRange& range, const Values& values) {
  const int bits = BitsOf(codes);
  const AffineGrid grid = AffineGridOf(range, bits);
  int8_t* low = IsWide(bits) ? codes.out<int8_t>(2) : nullptr;
  bool* nans = NansOf(codes);
  fp32::OverSampleDraws(codes, [&](int worker, int64_t at, int64_t size, const uint32_t* draw) {
    nans[worker] |=
        codes.machine.grids->codes(values(worker, at, size), draw, size, grid, CodeCentre(bits),
                                   codes.out<int8_t>(0) + at, low == nullptr ? nullptr : low + at);
  });
  StoreGrid(codes, grid, nans, codes.machine.workers());
}

}  // namespace

// Normalisation, [activation], codes.
absl::Status CodesOfNorm(absl::Span<const Call> calls) {
  const Call &norm = calls[0], &codes = calls.back(), &maker = calls[calls.size() - 2];
  const int64_t channels = norm.in_shape(0)[1];
  ChannelEnds ends(norm, channels);
  fp32::EnsureStatistics(
      norm, [&](int worker, const float* x, int64_t rows) { ends.Add(worker, x, rows); });
  const Normalisation n =
      fp32::NormalisationOf(norm, fp32::ActivationAfter(calls.first(calls.size() - 1)));
  const bool has_ends = codes.instruction->code == OpCode::kAffineActivationCodes &&
                        norm.instruction->code == OpCode::kBatchNormForward && !norm.sums_done &&
                        !host::NormsByRunning(*norm.instruction, norm.in_shape(0));
  std::optional<ValueRange> range = has_ends ? ends.RangeOf(norm, n) : RangeBefore(codes);
  const auto make = [&](int64_t row, int64_t count, float* to) {
    norm.kernels().normalise(norm.in(0) + row * channels, count, channels, n, to);
  };
  const MadeRows values(codes, channels, make, maker.keep_output ? maker.out(0) : nullptr);
  if (!maker.keep_output) {
    StoreActivationCodes(codes, values, range.has_value() ? *range : values.Range());
    return absl::OkStatus();
  }
  // All of them stand before the first code is written: codes may lie where x does.
  const ValueRange made = values.Range();
  StoreActivationCodes(codes, maker.out(0), range.value_or(made));
  return absl::OkStatus();
}

// Normalisation, its sum with another value, activation, codes. The sum's activation is kept.
absl::Status CodesOfSum(absl::Span<const Call> calls) {
  const Call &norm = calls[0], &sum = calls[1], &activation = calls[2], &codes = calls[3];
  const int64_t channels = norm.in_shape(0)[1];
  fp32::EnsureStatistics(norm);
  const Normalisation n = fp32::NormalisationOf(norm, fp32::Activation::kNone);
  const bool norm_is_first = sum.inputs[0].data == norm.outputs[0].data;
  const float* other = sum.in(norm_is_first ? 1 : 0);
  const auto activate = activation.instruction->code == OpCode::kReluForward ? norm.kernels().relu
                                                                             : norm.kernels().relu6;
  const auto make = [&](int64_t row, int64_t count, float* to) {
    const int64_t at = row * channels, size = count * channels;
    norm.kernels().normalise(norm.in(0) + at, count, channels, n, to);
    norm.kernels().add(norm_is_first ? to : other + at, norm_is_first ? other + at : to, size, to);
    activate(to, size, to);
  };
  float* y = activation.out(0);
  const ValueRange made = MadeRows(codes, channels, make, y).Range();
  StoreActivationCodes(codes, y, RangeBefore(codes).value_or(made));
  return absl::OkStatus();
}

// [Gradient of an activation], gradient of the normalisation before it, codes.
absl::Status CodesOfNormGradient(absl::Span<const Call> calls) {
  const Call& codes = calls.back();
  const absl::Span<const Call> gradient = calls.first(calls.size() - 1);
  const Call& norm = gradient.back();
  const float* dy = gradient[0].in(0);
  const Normalisation n = fp32::NormalisationOf(norm, fp32::ActivationBefore(gradient));
  fp32::EnsureGradientSums(norm, n, dy);
  const RowSource dx = fp32::GradientSource(norm, n, dy);
  const auto make = [&](int64_t row, int64_t count, float* to) {
    dx.Make(codes.kernels(), row, count, to);
  };
  float* kept = norm.keep_output ? norm.out(0) : nullptr;
  const ValueRange range = MadeRows(codes, dx.channels, make, kept).Range();
  if (kept != nullptr) {
    StoreErrorCodes(codes, range, [&](int, int64_t at, int64_t) { return kept + at; });
    return absl::OkStatus();
  }
  const int64_t sample = codes.in_shape(0).elements() / codes.in_shape(0)[0];
  auto* samples = codes.Take<float>(codes.machine.workers() * sample);
  StoreErrorCodes(codes, range, [&](int worker, int64_t at, int64_t size) {
    float* values = samples + worker * sample;
    make(at / dx.channels, size / dx.channels, values);
    return values;
  });
  return absl::OkStatus();
}

}  // namespace runnel::cpu
