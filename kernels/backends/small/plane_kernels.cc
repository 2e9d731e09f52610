#include "kernels/backends/small/plane_kernels.h"

#include <algorithm>
#include <vector>

#include "kernels/backends/small/far_values.h"
#include "kernels/backends/small/primitives/depthwise.h"

namespace runnel::small {
namespace {

using host::Call;

// ---- pools

// Average pools have no padding, whatever their attributes say; `whole`: one window.
struct Planes {
  Pool pool;
  int64_t count = 0;
};
Planes PlanesOf(const Call& call, const Shape& x, const Shape& y, bool whole) {
  const host::Image in = host::ImageOf(x), out = host::ImageOf(y);
  Planes planes;
  planes.count = in.n * in.c;
  Conv& conv = planes.pool.window;
  conv.in = {1, static_cast<int32_t>(in.h), static_cast<int32_t>(in.w)};
  if (whole) {
    conv.out = {1, 1, 1};
    conv.kh = conv.in.h;
    conv.kw = conv.in.w;
    return planes;
  }
  conv.out = {1, static_cast<int32_t>(out.h), static_cast<int32_t>(out.w)};
  const host::Window window = host::WindowOf(call.attributes(), x);
  conv.kh = static_cast<int32_t>(window.kh);
  conv.kw = static_cast<int32_t>(window.kw);
  conv.stride_h = static_cast<int32_t>(window.sh);
  conv.stride_w = static_cast<int32_t>(window.sw);
  if (call.attributes().kind != OpKind::kAvgPool) {
    conv.pad_h = static_cast<int32_t>(window.ph);
    conv.pad_w = static_cast<int32_t>(window.pw);
  }
  return planes;
}

// A tile: the pool over what lies in L1, and which rows of the plane that is.
struct PoolTile {
  Pool pool;
  int32_t first_in = 0, first_out = 0;
  int32_t first_written = 0, written = 0;  // rows
};

PoolTile ForwardTile(const Conv& whole, int32_t begin, int32_t end) {
  const AxisTile axis = ForwardAxis(begin, end, whole.stride_h, whole.kh, whole.pad_h, whole.in.h);
  PoolTile tile = {{whole}, axis.first, begin, begin, end - begin};
  tile.pool.window.in.h = axis.count;
  tile.pool.window.out.h = end - begin;
  tile.pool.window.pad_h = axis.pad;
  return tile;
}

// Of rows of dX: all windows that reach one of them, and all rows that these reach.
PoolTile BackwardTile(const Conv& whole, int32_t begin, int32_t end) {
  const AxisTile windows =
      BackwardAxis(begin, end, whole.stride_h, whole.kh, whole.pad_h, whole.out.h);
  const AxisTile reached = ForwardAxis(windows.first, windows.first + std::max(windows.count, 1),
                                       whole.stride_h, whole.kh, whole.pad_h, whole.in.h);
  const int32_t low = windows.count > 0 ? std::min(begin, reached.first) : begin;
  const int32_t high = windows.count > 0 ? std::max(end, reached.first + reached.count) : end;
  PoolTile tile = {{whole}, low, windows.first, begin, end - begin};
  tile.pool.window.in.h = high - low;
  tile.pool.window.out.h = windows.count;
  tile.pool.window.pad_h = whole.pad_h - windows.first * whole.stride_h + low;
  return tile;
}

// Pieces of L1, or of memory that is taken where L1 has no room for them.
class TileMemory {
 public:
  TileMemory(NearMemory l1, int64_t bytes) : at_(l1.data) {
    if (bytes <= l1.bytes) return;
    own_.resize(static_cast<size_t>(bytes / 8 + 1));
    at_ = reinterpret_cast<std::byte*>(own_.data());
  }
  template <typename T>
  T* Take(int64_t count) {
    T* piece = reinterpret_cast<T*>(at_);
    at_ += count * static_cast<int64_t>(sizeof(T));
    return piece;
  }

 private:
  std::vector<double> own_;
  std::byte* at_;
};

// Doubles of the sums of a backward, floats of X and Y, a byte an output.
int64_t BytesOf(const PoolTile& tile, bool is_backward) {
  const Conv& c = tile.pool.window;
  return int64_t{c.in.positions()} * (is_backward ? 12 : 4) + int64_t{c.out.positions()} * 5 + 8;
}

using TileOf = PoolTile (*)(const Conv& whole, int32_t begin, int32_t end);

// The most rows of `all` with which each tile fits, or one.
int32_t RowsWithin(const Conv& whole, TileOf tile_of, int32_t all, bool is_backward,
                   int64_t l1_bytes) {
  for (int32_t rows = all; rows > 1; rows = (rows + 1) / 2) {
    int64_t most = 0;
    for (int32_t begin = 0; begin < all; begin += rows)
      most =
          std::max(most, BytesOf(tile_of(whole, begin, std::min(all, begin + rows)), is_backward));
    if (most <= l1_bytes) return rows;
  }
  return 1;
}

// Calls body(tile, plane, memory) for all tiles of all planes.
template <typename Body>
void ForTiles(const Planes& planes, bool is_backward, NearMemory l1, const Body& body) {
  const Conv& whole = planes.pool.window;
  const TileOf tile_of = is_backward ? BackwardTile : ForwardTile;
  const int32_t all = is_backward ? whole.in.h : whole.out.h;
  const int32_t rows = RowsWithin(whole, tile_of, all, is_backward, l1.bytes);
  for (int64_t plane = 0; plane < planes.count; ++plane) {
    for (int32_t begin = 0; begin < all; begin += rows) {
      const PoolTile tile = tile_of(whole, begin, std::min(all, begin + rows));
      TileMemory memory(l1, BytesOf(tile, is_backward));
      body(tile, plane, memory);
    }
  }
}

// pool(tile, x, y, taps); taps lie at output 1 if there are any.
template <typename PoolFn>
absl::Status ForwardOf(const Call& call, bool whole, NearMemory l1, const PoolFn& pool) {
  const Planes planes = PlanesOf(call, call.in_shape(0), call.out_shape(0), whole);
  const Conv& c = planes.pool.window;
  const FarValues x = FarValues::Input(call, 0), y = FarValues::Output(call, 0);
  ForTiles(planes, false, l1, [&](const PoolTile& tile, int64_t plane, TileMemory& memory) {
    const Conv& here = tile.pool.window;
    float* near_x = memory.Take<float>(here.in.positions());
    float* near_y = memory.Take<float>(here.out.positions());
    auto* taps = memory.Take<uint8_t>(here.out.positions());
    x.Read(plane * c.in.positions() + int64_t{tile.first_in} * c.in.w, here.in.positions(), near_x);
    pool(tile.pool, near_x, near_y, taps);
    const int64_t at = plane * c.out.positions() + int64_t{tile.first_out} * c.out.w;
    y.Write(at, {near_y, static_cast<size_t>(here.out.positions())});
    if (call.has_output(1)) std::copy_n(taps, here.out.positions(), call.out<uint8_t>(1) + at);
  });
  return absl::OkStatus();
}

// pool(tile, dy, taps, sums, dx); taps are input 1 if there is one.
template <typename PoolFn>
absl::Status GradientOf(const Call& call, bool whole, NearMemory l1, const PoolFn& pool) {
  const Planes planes = PlanesOf(call, call.out_shape(0), call.in_shape(0), whole);
  const Conv& c = planes.pool.window;
  const FarValues dy = FarValues::Input(call, 0), dx = FarValues::Output(call, 0);
  ForTiles(planes, true, l1, [&](const PoolTile& tile, int64_t plane, TileMemory& memory) {
    const Conv& here = tile.pool.window;
    double* sums = memory.Take<double>(here.in.positions());
    float* near_dx = memory.Take<float>(here.in.positions());
    float* near_dy = memory.Take<float>(here.out.positions());
    auto* taps = memory.Take<uint8_t>(here.out.positions());
    const int64_t at = plane * c.out.positions() + int64_t{tile.first_out} * c.out.w;
    dy.Read(at, here.out.positions(), near_dy);
    if (call.has_input(1)) std::copy_n(call.in<uint8_t>(1) + at, here.out.positions(), taps);
    pool(tile.pool, near_dy, taps, sums, near_dx);
    const int64_t skipped = int64_t{tile.first_written - tile.first_in} * c.in.w;
    dx.Write(plane * c.in.positions() + int64_t{tile.first_written} * c.in.w,
             {near_dx + skipped, static_cast<size_t>(tile.written) * c.in.w});
  });
  return absl::OkStatus();
}

template <bool kWhole>
absl::Status AverageForward(const Call& call, NearMemory l1) {
  return ForwardOf(call, kWhole, l1, [](const Pool& pool, const float* x, float* y, uint8_t*) {
    AveragePool(pool, x, y);
  });
}

template <bool kWhole>
absl::Status AverageGradient(const Call& call, NearMemory l1) {
  return GradientOf(call, kWhole, l1,
                    [](const Pool& pool, const float* dy, const uint8_t*, double* sums, float* dx) {
                      AveragePoolGradient(pool, dy, sums, dx);
                    });
}

absl::Status MaxForward(const Call& call, NearMemory l1) {
  return ForwardOf(call, false, l1, MaxPool);
}
absl::Status MaxGradient(const Call& call, NearMemory l1) {
  return GradientOf(call, false, l1, MaxPoolGradient);
}

// ---- batch norm

// The elements of one channel after the other, in pieces that lie in L1, of up to two operands.
class ChannelPieces {
 public:
  ChannelPieces(const Shape& shape, std::vector<FarValues> operands, NearMemory l1)
      : samples_(shape[0]),
        channels_(shape[1]),
        inner_(shape.elements() / (samples_ * channels_)),
        operands_(std::move(operands)),
        near_(reinterpret_cast<float*>(l1.data)),
        room_(l1.bytes / 4 / static_cast<int64_t>(operands_.size())) {}

  int64_t channels() const { return channels_; }
  double elements() const { return static_cast<double>(samples_ * inner_); }

  // body(count, where in the tensor, first operand's, second's). What it does to them lasts until
  // Begin only if the channel is_resident().
  template <typename Body>
  void Pass(int64_t channel, const Body& body) {
    const bool reads = !is_resident() || channel != loaded_;
    loaded_ = channel;
    int64_t place = 0;
    for (int64_t n = 0; n < samples_; ++n) {
      for (int64_t i = 0; i < inner_; i += room_) {
        const int64_t count = std::min(room_, inner_ - i);
        const int64_t at = (n * channels_ + channel) * inner_ + i;
        float* near[2] = {near_ + place, near_ + place + room_};
        for (size_t k = 0; k < operands_.size() && reads; ++k)
          operands_[k].Read(at, count, near[k]);
        body(count, at, near[0], near[1]);
        if (is_resident()) place += count;
      }
    }
  }

 private:
  bool is_resident() const { return samples_ * inner_ <= room_; }

  const int64_t samples_, channels_, inner_;
  const std::vector<FarValues> operands_;
  float* const near_;
  const int64_t room_;  // floats of each operand
  int64_t loaded_ = -1;
};

void NormalizeChannel(const Norm& norm, int64_t channel, const FarValues& y,
                      ChannelPieces& pieces) {
  pieces.Pass(channel, [&](int64_t count, int64_t at, float* x, float*) {
    Normalize(norm, x, count, x);
    y.Write(at, {x, static_cast<size_t>(count)});
  });
}

// The running statistics take the unrounded moments; what normalises is rounded to FP32.
absl::Status NormForward(const Call& call, NearMemory l1) {
  const OpSpec& op = call.attributes();
  ChannelPieces pieces(call.in_shape(0), {FarValues::Input(call, 0)}, l1);
  const FarValues y = FarValues::Output(call, 0);
  float* stats = call.out(1);
  for (int64_t c = 0; c < pieces.channels(); ++c) {
    double sum = 0, squares = 0;
    pieces.Pass(c, [&](int64_t count, int64_t, float* x, float*) { AddSum(x, count, sum); });
    const double mean = sum / pieces.elements();
    pieces.Pass(
        c, [&](int64_t count, int64_t, float* x, float*) { AddSquares(x, count, mean, squares); });
    const Moments moments = MomentsOf(pieces.elements(), sum, squares);
    float& inverse = stats[pieces.channels() + c];
    stats[c] = static_cast<float>(moments.mean);
    inverse = static_cast<float>(InverseDeviation(moments.variance, op.epsilon));
    NormalizeChannel({stats[c], inverse, call.in(1)[c], call.in(2)[c]}, c, y, pieces);
    float& running_mean = call.out(2)[c];
    float& running_variance = call.out(3)[c];
    running_mean =
        static_cast<float>((1 - op.momentum) * running_mean + op.momentum * moments.mean);
    running_variance =
        static_cast<float>((1 - op.momentum) * running_variance + op.momentum * moments.unbiased);
  }
  return absl::OkStatus();
}

absl::Status NormEval(const Call& call, NearMemory l1) {
  ChannelPieces pieces(call.in_shape(0), {FarValues::Input(call, 0)}, l1);
  const FarValues y = FarValues::Output(call, 0);
  for (int64_t c = 0; c < pieces.channels(); ++c) {
    const double inverse = InverseDeviation(call.in(4)[c], call.attributes().epsilon);
    NormalizeChannel({call.in(3)[c], inverse, call.in(1)[c], call.in(2)[c]}, c, y, pieces);
  }
  return absl::OkStatus();
}

absl::Status NormAgain(const Call& call, NearMemory l1) {
  ChannelPieces pieces(call.in_shape(0), {FarValues::Input(call, 0)}, l1);
  const FarValues y = FarValues::Output(call, 0);
  const float* stats = call.in(3);
  for (int64_t c = 0; c < pieces.channels(); ++c) {
    NormalizeChannel({stats[c], stats[pieces.channels() + c], call.in(1)[c], call.in(2)[c]}, c, y,
                     pieces);
  }
  return absl::OkStatus();
}

absl::Status NormInputGradient(const Call& call, NearMemory l1) {
  ChannelPieces pieces(call.in_shape(0), {FarValues::Input(call, 0), FarValues::Input(call, 1)},
                       l1);
  const FarValues dx = FarValues::Output(call, 0);
  const float* stats = call.in(3);
  const int64_t channels = pieces.channels();
  for (int64_t c = 0; c < channels; ++c) {
    const Norm norm = {stats[c], stats[channels + c], call.in(2)[c]};
    NormGradient sums;
    pieces.Pass(c, [&](int64_t count, int64_t, float* dy, float* x) {
      AddNormGradient(norm, dy, x, count, sums);
    });
    pieces.Pass(c, [&](int64_t count, int64_t at, float* dy, float* x) {
      NormalizeGradient(norm, sums, pieces.elements(), dy, x, count, dy);
      dx.Write(at, {dy, static_cast<size_t>(count)});
    });
    call.out(1)[c] = static_cast<float>(sums.scale);
    call.out(1)[channels + c] = static_cast<float>(sums.shift);
  }
  return absl::OkStatus();
}

// A number a channel.
absl::Status NormWeightGradient(const Call& call, NearMemory /*l1*/) {
  const int64_t channels = call.out_shape(0)[0];
  for (size_t output = 0; output < 2; ++output) {
    for (int64_t c = 0; c < channels; ++c) {
      const float gradient = call.in(0)[static_cast<int64_t>(output) * channels + c];
      float& place = call.out(output)[c];
      place = call.adds() ? place + gradient : gradient;
    }
  }
  return absl::OkStatus();
}

struct PlaneRow {
  OpCode code;
  PlaneKernel kernel;
};
constexpr PlaneRow kRows[] = {
    {OpCode::kMaxPoolForward, MaxForward},
    {OpCode::kMaxPoolInputGradient, MaxGradient},
    {OpCode::kAvgPoolForward, AverageForward<false>},
    {OpCode::kAvgPoolInputGradient, AverageGradient<false>},
    {OpCode::kGlobalAvgPoolForward, AverageForward<true>},
    {OpCode::kGlobalAvgPoolInputGradient, AverageGradient<true>},
    {OpCode::kBatchNormForward, NormForward},
    {OpCode::kBatchNormEval, NormEval},
    {OpCode::kBatchNormAgain, NormAgain},
    {OpCode::kBatchNormInputGradient, NormInputGradient},
    {OpCode::kBatchNormWeightGradient, NormWeightGradient},
};

}  // namespace

PlaneKernel FindPlaneKernel(OpCode code) {
  for (const PlaneRow& row : kRows) {
    if (row.code == code) return row.kernel;
  }
  return nullptr;
}

}  // namespace runnel::small
