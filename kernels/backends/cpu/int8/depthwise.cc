#include "kernels/backends/cpu/int8/depthwise.h"

#include <algorithm>

#include "kernels/backends/cpu/int8/axis.h"
#include "kernels/backends/cpu/int8/workspace_layout.h"

namespace runnel::cpu {
namespace {

// Channels of one item of the weight-gradient: sums of all taps stay in the nearest cache.
constexpr int64_t kChannelBlock = 64;
// That an int32 holds the sum of: one may be 2^14 (Int8Kernels::takes_lowest).
constexpr int64_t kMostProducts = 131071;

AxisShape AxisH(const ConvShape& s) { return {s.in_h, s.out_h, s.kernel_h, s.stride_h, s.pad_h}; }
AxisShape AxisW(const ConvShape& s) { return {s.in_w, s.out_w, s.kernel_w, s.stride_w, s.pad_w}; }

struct Memory {
  Memory(const ConvShape& shape, int threads, std::byte* base) {
    WorkspaceLayout layout(base);
    weights = layout.Place<int8_t>(shape.taps() * shape.in_c);
    x = layout.Place<const int8_t*>(threads * shape.taps());
    w = layout.Place<const int8_t*>(threads * shape.taps());
    max_lanes = layout.Place<uint32_t>(int64_t{threads} * kMaxLanes);
    bytes = layout.used_bytes();
  }

  int8_t* weights;  // [slot h][slot w][channel]
  const int8_t** x;
  const int8_t** w;
  uint32_t* max_lanes;
  int64_t bytes;
};

// One thread's images of the forward or of the input-gradient.
class GatherPart {
 public:
  GatherPart(const Int8Kernels& kernels, const ConvShape& shape, bool input_gradient,
             const int8_t* weights, const int8_t** x, const int8_t** w, uint32_t* max_lanes)
      : kernels_(kernels),
        shape_(shape),
        back_(input_gradient),
        axis_h_(AxisH(shape)),
        axis_w_(AxisW(shape)),
        weights_(weights),
        x_(x),
        w_(w),
        max_lanes_(max_lanes) {}

  // All rows of one image.
  void RunImage(const int8_t* source, int32_t* out) {
    const int64_t rows = back_ ? shape_.in_h : shape_.out_h;
    const int64_t row = (back_ ? shape_.in_w : shape_.out_w) * shape_.in_c;
    for (int64_t y = 0; y < rows; ++y) RunRow(source, y, out + y * row);
  }

  // Row y of one image.
  void RunRow(const int8_t* source, int64_t y, int32_t* out) {
    RunNeighbours(source, Run(axis_h_, y), out);
  }

 private:
  AxisRun Run(const AxisShape& axis, int64_t o) const {
    return back_ ? InputGradientRun(axis, o) : ForwardRun(axis, o);
  }

  // Neighbours (at the stride's distance in the input-gradient) with the same taps go together.
  void RunNeighbours(const int8_t* source, const AxisRun& h, int32_t* out) {
    const int64_t outputs = back_ ? shape_.in_w : shape_.out_w;
    const int64_t step = back_ ? shape_.stride_w : 1;
    for (int64_t phase = 0; phase < std::min(step, outputs); ++phase) {
      int64_t first = phase;
      while (first < outputs) {
        const AxisRun run = Run(axis_w_, first);
        int64_t pixels = 1;
        while (first + pixels * step < outputs &&
               Run(axis_w_, first + pixels * step).SameClass(run)) {
          ++pixels;
        }
        RunPixels(source, h, run, pixels, out + first * shape_.in_c, step * shape_.in_c);
        first += pixels * step;
      }
    }
  }

  void RunPixels(const int8_t* source, const AxisRun& h, const AxisRun& w, int64_t pixels,
                 int32_t* out, int64_t out_step) {
    const int64_t source_w = back_ ? shape_.out_w : shape_.in_w, channels = shape_.in_c;
    int taps = 0;
    for (int64_t i = 0; i < h.count; ++i) {
      for (int64_t j = 0; j < w.count; ++j, ++taps) {
        x_[taps] = source + ((h.source + i) * source_w + w.source + j) * channels;
        w_[taps] = weights_ + ((h.slot + i) * shape_.kernel_w + w.slot + j) * channels;
      }
    }
    const int64_t x_step = back_ ? channels : shape_.stride_w * channels;
    kernels_.depthwise_row(x_, x_step, w_, taps, pixels, channels, out, out_step, max_lanes_);
  }

  const Int8Kernels& kernels_;
  const ConvShape& shape_;
  const bool back_;
  const AxisShape axis_h_, axis_w_;
  const int8_t* weights_;
  const int8_t** x_;
  const int8_t** w_;
  uint32_t* max_lanes_;
};

void TransposeWeights(const ConvShape& shape, bool input_gradient, const int8_t* w, int8_t* out) {
  for (int64_t slot = 0; slot < shape.taps(); ++slot) {
    int64_t tap = slot;
    if (input_gradient) {
      tap = InputGradientTap(AxisH(shape), slot / shape.kernel_w) * shape.kernel_w +
            InputGradientTap(AxisW(shape), slot % shape.kernel_w);
    }
    for (int64_t c = 0; c < shape.in_c; ++c) *out++ = w[c * shape.taps() + tap];
  }
}

// Output rows and columns of an image.
struct Area {
  int64_t top, bottom, left, right;
};

// Sums of one tap of one block of channels over an area of one image, without those of the padding.
void AddTap(const Int8Kernels& kernels, const ConvShape& s, const int8_t* dy, const int8_t* x,
            const Area& area, int64_t tap, int64_t channels, int32_t* sums) {
  const int64_t kh = tap / s.kernel_w, kw = tap % s.kernel_w;
  const int64_t move_w = kw - s.pad_w;
  const int64_t inside = move_w >= 0 ? 0 : (-move_w + s.stride_w - 1) / s.stride_w;
  const int64_t outside = s.in_w - 1 - move_w < 0 ? 0 : (s.in_w - 1 - move_w) / s.stride_w + 1;
  const int64_t begin = std::max(area.left, inside), end = std::min(area.right, outside);
  if (begin >= end) return;
  for (int64_t y = area.top; y < area.bottom; ++y) {
    const int64_t iy = y * s.stride_h + kh - s.pad_h;
    if (iy < 0 || iy >= s.in_h) continue;
    const int8_t* x_row = x + (iy * s.in_w + begin * s.stride_w + move_w) * s.in_c;
    kernels.depthwise_weight_row(dy + (y * s.out_w + begin) * s.in_c, s.in_c, x_row,
                                 s.stride_w * s.in_c, end - begin, channels, sums);
  }
}

int64_t Blocks(const ConvShape& s) { return (s.in_c + kChannelBlock - 1) / kChannelBlock; }

// Sums of every block, [block][tap][kChannelBlock].
struct WeightGradientMemory {
  WeightGradientMemory(const ConvShape& s, std::byte* base) {
    WorkspaceLayout layout(base);
    sums = layout.Place<int32_t>(Blocks(s) * s.taps() * kChannelBlock);
    totals = layout.Place<int64_t>(Blocks(s) * s.taps() * kChannelBlock);
    bytes = layout.used_bytes();
  }

  int32_t* sums;  // since the last addition to totals
  int64_t* totals;
  int64_t bytes;
};

// One block of channels over the whole batch, image by image so that an image's rows are read from
// the caches by all taps.
void SumBlock(const Int8Kernels& kernels, const ConvShape& s, const int8_t* dy, const int8_t* x,
              int64_t channel, int32_t* sums, int64_t* totals) {
  const int64_t channels = std::min(kChannelBlock, s.in_c - channel);
  const int64_t count = s.taps() * kChannelBlock;
  // Areas whose sums an int32 holds.
  const int64_t columns = std::min(kMostProducts, s.out_w);
  const int64_t rows = std::clamp<int64_t>(kMostProducts / columns, 1, s.out_h);
  int64_t products = 0;  // in sums
  const auto flush = [&] {
    for (int64_t i = 0; i < count; ++i) totals[i] += sums[i];
    std::fill_n(sums, count, 0);
    products = 0;
  };
  std::fill_n(totals, count, int64_t{0});
  std::fill_n(sums, count, 0);
  for (int64_t n = 0; n < s.batch; ++n) {
    const int8_t* dy_image = dy + n * s.out_h * s.out_w * s.in_c + channel;
    const int8_t* x_image = x + n * s.in_h * s.in_w * s.in_c + channel;
    for (int64_t y = 0; y < s.out_h; y += rows) {
      for (int64_t left = 0; left < s.out_w; left += columns) {
        if (products + rows * columns > kMostProducts) flush();
        products += rows * columns;
        const Area area = {y, std::min(s.out_h, y + rows), left, std::min(s.out_w, left + columns)};
        for (int64_t tap = 0; tap < s.taps(); ++tap) {
          AddTap(kernels, s, dy_image, x_image, area, tap, channels, sums + tap * kChannelBlock);
        }
      }
    }
  }
  flush();
}

template <typename T>
void StoreBlock(const ConvShape& s, int64_t channel, const int64_t* totals, bool adds, T* dw) {
  const int64_t channels = std::min(kChannelBlock, s.in_c - channel);
  for (int64_t tap = 0; tap < s.taps(); ++tap) {
    for (int64_t c = 0; c < channels; ++c) {
      T& sum = dw[(channel + c) * s.taps() + tap];
      sum = static_cast<T>(totals[tap * kChannelBlock + c] + (adds ? sum : 0));
    }
  }
}

}  // namespace

int64_t DepthwiseWorkspaceBytes(const ConvShape& shape, ConvPass pass, int threads) {
  const bool weight_gradient =
      pass == ConvPass::kWeightGradient || pass == ConvPass::kWideWeightGradient;
  return weight_gradient ? WeightGradientMemory(shape, nullptr).bytes
                         : Memory(shape, threads, nullptr).bytes;
}

void RunDepthwise(const Int8Context& context, const ConvShape& shape, bool input_gradient,
                  const int8_t* source, const int8_t* w, int32_t* out, uint32_t* max_lanes) {
  const int64_t threads = context.pool->threads(), taps = shape.taps();
  const Memory memory(shape, static_cast<int>(threads), context.workspace);
  TransposeWeights(shape, input_gradient, w, memory.weights);
  std::fill_n(memory.max_lanes, threads * kMaxLanes, 0u);
  int64_t source_image = shape.in_h * shape.in_w * shape.in_c;
  int64_t out_image = shape.out_h * shape.out_w * shape.in_c;
  if (input_gradient) std::swap(source_image, out_image);
  context.pool->ParallelFor(shape.batch, [&](int thread, int64_t n) {
    const int64_t t = thread;
    GatherPart(*context.kernels, shape, input_gradient, memory.weights, memory.x + t * taps,
               memory.w + t * taps, memory.max_lanes + t * kMaxLanes)
        .RunImage(source + n * source_image, out + n * out_image);
  });
  if (max_lanes == nullptr) return;
  for (int64_t i = 0; i < threads * kMaxLanes; ++i) {
    max_lanes[i % kMaxLanes] = std::max(max_lanes[i % kMaxLanes], memory.max_lanes[i]);
  }
}

namespace {

// Sums of one row of outputs.
int64_t RowSums(const ConvShape& s) { return s.out_w * s.in_c; }

// Gives the outputs of one row, whose first element is at `place` of the result.
void GiveRow(const ConvShape& s, const int32_t* sums, int64_t place, SumsSink& sink) {
  const int32_t* rows[kMaxTileRows];
  int64_t places[kMaxTileRows];
  for (int64_t first = 0; first < s.out_w; first += kMaxTileRows) {
    const auto count = static_cast<int>(std::min<int64_t>(kMaxTileRows, s.out_w - first));
    for (int r = 0; r < count; ++r) {
      rows[r] = sums + (first + r) * s.in_c;
      places[r] = place + (first + r) * s.in_c;
    }
    sink.Take({rows, places, count, 0, s.in_c});
  }
}

}  // namespace

int64_t DepthwiseToSinkBytes(const ConvShape& shape, int threads) {
  WorkspaceLayout layout(nullptr);
  layout.Place<int32_t>(threads * RowSums(shape));
  return Memory(shape, threads, nullptr).bytes + layout.used_bytes();
}

void RunDepthwiseToSink(const Int8Context& context, const ConvShape& shape, const int8_t* source,
                        const int8_t* w, SumsSink& sink) {
  const int64_t threads = context.pool->threads(), taps = shape.taps();
  const Memory memory(shape, static_cast<int>(threads), context.workspace);
  TransposeWeights(shape, /*input_gradient=*/false, w, memory.weights);
  auto* sums = reinterpret_cast<int32_t*>(context.workspace + memory.bytes);
  const int64_t image = shape.in_h * shape.in_w * shape.in_c;
  context.pool->ParallelFor(shape.batch * shape.out_h, [&](int thread, int64_t line) {
    int32_t* row = sums + thread * RowSums(shape);
    const int64_t n = line / shape.out_h, y = line % shape.out_h;
    GatherPart(*context.kernels, shape, /*input_gradient=*/false, memory.weights,
               memory.x + thread * taps, memory.w + thread * taps, nullptr)
        .RunRow(source + n * image, y, row);
    GiveRow(shape, row, line * RowSums(shape), sink);
  });
}

void RunDepthwiseWeightGradient(const Int8Context& context, const ConvShape& shape,
                                const int8_t* dy, const int8_t* x, int32_t* dw, int64_t* wide,
                                bool adds) {
  const WeightGradientMemory memory(shape, context.workspace);
  context.pool->ParallelFor(Blocks(shape), [&](int, int64_t b) {
    const int64_t channel = b * kChannelBlock, first = channel * shape.taps();
    SumBlock(*context.kernels, shape, dy, x, channel, memory.sums + first, memory.totals + first);
    if (wide != nullptr) {
      StoreBlock(shape, channel, memory.totals + first, adds, wide);
    } else {
      StoreBlock(shape, channel, memory.totals + first, adds, dw);
    }
  });
}

}  // namespace runnel::cpu
