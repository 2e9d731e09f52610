// Convolutions. Forward and input-gradient have neighbouring pixels as lanes, so that the result is
// in the row-major order of its images, and weights as rows; the weight-gradient has the weights of
// a window as lanes and adds over pixels.

#include "kernels/hexagon/dsp/pack.h"
#include "kernels/hexagon/dsp/packed_weights.h"
#include "kernels/hexagon/dsp/wide_sums.h"

namespace runnel::hexagon {
namespace {

// Steps of a tile of B in VTCM; the products read one step ahead.
int TileSteps(const Machine& machine) {
  const int steps = static_cast<int>(machine.vtcm_bytes / (kTileLanes * 4)) - 2;
  return Max(32, steps / 32 * 32);
}

// Positions first..first + lanes of images of `positions` pixels that are `sample_elements` apart.
int RunsOf(uint32_t first, int lanes, uint32_t positions, uint32_t sample_elements, LaneRun* runs) {
  uint32_t sample = first / positions, at = first % positions;
  int used = 0;
  for (int lane = 0; lane < lanes;) {
    const int count = static_cast<int>(Min<uint32_t>(positions - at, lanes - lane));
    runs[used++] = {sample * sample_elements + at, lane, count};
    lane += count;
    at = 0;
    ++sample;
  }
  return used;
}

// What a tile's lanes read: images and, by k = (tap, channel) of a group, where in them.
struct Source {
  LaidOutImages images;
  bool in_place = false;
  EdgeMasks edges;
  const LaneRead* reads = nullptr;  // of the first group, for whole steps
  uint32_t group_bytes = 0;         // from group to group
};

struct Pixels {
  Source source;
  DspImages grid;  // the result; c: of all groups
  int groups = 1;
  PackedRows weights;  // of the first group; those of the others behind it
  Vector* waiting = nullptr;
};

// To `result`, or `rounded`.
int64_t ProductOverPixels(Machine& machine, const Pixels& p, int32_t* result,
                          RoundedSums* rounded) {
  const uint32_t positions = p.grid.h * p.grid.w;
  const uint32_t total = p.grid.n * positions;
  const int tile_steps = TileSteps(machine);
  auto* b = reinterpret_cast<Vector*>(machine.vtcm);
  Segment segments[kTileLanes];
  LaneRun runs[kTileLanes];
  Vector masks[kMaxMasks];
  MaxWords largest;
  for (uint32_t first = 0; first < total; first += kTileLanes) {
    const int lanes = static_cast<int>(Min<uint32_t>(kTileLanes, total - first));
    const int segment_count = SegmentsOf(p.source.images, p.grid, first, lanes, segments);
    if (p.source.in_place) FillMasks(p.source.edges, p.grid, first, masks);
    TileTarget target;
    target.row_elements = positions;
    target.runs = runs;
    target.run_count = RunsOf(first, lanes, positions, p.grid.c * positions, runs);
    target.lanes = lanes;
    target.waiting = p.waiting;
    target.c = result;
    target.rounded = rounded;
    for (int g = 0; g < p.groups; ++g) {
      PackedRows weights = p.weights;
      weights.words += g * weights.rows * weights.steps;
      weights.start += g * weights.rows;
      target.first = g * weights.rows * positions;
      LaneReader reader(p.source.images.data + g * p.source.group_bytes, segments, segment_count,
                        p.source.in_place ? masks : nullptr);
      for (int step = 0; step < weights.steps; step += tile_steps) {
        const int count = Min(tile_steps, weights.steps - step);
        PackLaneRows(reader, p.source.reads + 4 * step, count, lanes, b);
        target.takes = step > 0;
        target.waits = step + count < weights.steps;
        target.largest = target.waits ? nullptr : &largest;
        MultiplyTile(weights, step, count, step == 0, b, target);
      }
    }
  }
  return largest.Result();
}

bool TakeWaiting(Machine& machine, int rows, Pixels& p) {
  p.waiting = machine.scratch.Take<Vector>(4 * rows);
  return p.waiting != nullptr;
}

// Rows of `depth` for each group, with memory in the weights' packed form. The last that an
// operation takes: if it is fresh, nothing may keep the operation from filling it.
bool TakeWeights(Machine& machine, const DspTensor& tensor, PackedKind kind, int groups, int rows,
                 int depth, PackedRows& packed, bool& fresh) {
  packed.rows = rows;
  packed.steps = (depth + 3) / 4;
  // The products read ahead: the starts lie first.
  const uint32_t start_bytes = (groups * rows * 4 + 127) / 128 * 128;
  const uint32_t bytes = start_bytes + groups * rows * packed.steps * 4;
  uint8_t* memory = PackedWeights(machine, tensor, kind, bytes, fresh);
  if (memory == nullptr) return false;
  packed.start = reinterpret_cast<int32_t*>(memory);
  packed.words = reinterpret_cast<int32_t*>(memory + start_bytes);
  return true;
}

ImageLayout ForwardLayout(const DspOp& op) {
  const DspWindow& w = op.window;
  ImageLayout layout;
  layout.top = w.ph;
  layout.left = w.pw;
  layout.rows = op.x.h + 2 * w.ph;
  layout.columns = op.x.w + 2 * w.pw;
  layout.phases = w.sw;
  return layout;
}

// dx[c][i] = sum over taps and output channels of dy[(i + padding - tap) / stride] * w: a
// convolution of dy with stride - 1 zeros between its pixels, whose plane begins kernel - 1 before
// its first pixel.
ImageLayout GradientLayout(const DspOp& op) {
  const DspWindow& w = op.window;
  ImageLayout layout;
  layout.top = w.kh - 1;
  layout.left = w.kw - 1;
  layout.row_step = w.sh;
  layout.column_step = w.sw;
  layout.rows = op.x.h + w.ph + w.kh - 1;
  layout.columns = op.x.w + w.pw + w.kw - 1;
  return layout;
}

enum class Pass : uint8_t { kForward, kInputGradient };

bool FitsInPlace(const DspOp& op) {
  const DspWindow& w = op.window;
  return w.sh == 1 && w.sw == 1 && op.x.h == op.y.h && op.x.w == op.y.w &&
         Max(op.x.h, op.x.w) <= kMaxMaskedSide && w.kh * w.kw < kMaxMasks;
}

// Where tap (i, j) reads channel c.
LaneRead ReadOf(const Source& source, const DspOp& op, Pass pass, int i, int j, int c) {
  const DspWindow& w = op.window;
  const LaidOutImages& images = source.images;
  if (!source.in_place) {
    return {pass == Pass::kForward ? images.OffsetOf(c, i, j)
                                   : images.OffsetOf(c, w.ph + w.kh - 1 - i, w.pw + w.kw - 1 - j),
            0};
  }
  const int row = source.edges.top + i * source.edges.step;
  const int column = source.edges.left + j * source.edges.step;
  const int32_t offset = c * static_cast<int32_t>(images.channel_bytes) +
                         row * static_cast<int32_t>(images.row_bytes) + column;
  return {offset, row == 0 && column == 0 ? 0 : 1 + i * w.kw + j};
}

// Of x, or of dy for the input-gradient. False: there is no memory.
bool MakeSource(Machine& machine, const DspOp& op, Pass pass, const DspTensor& images,
                Source& source) {
  const DspWindow& w = op.window;
  const bool forward = pass == Pass::kForward;
  const DspImages& size = forward ? op.x : op.y;
  const uint8_t* data = machine.data<uint8_t>(images);
  source.in_place = FitsInPlace(op);
  if (source.in_place) {
    source.images = InPlace(data, size);
    source.edges =
        forward ? EdgeMasks{w.kh, w.kw, -w.ph, -w.pw, 1} : EdgeMasks{w.kh, w.kw, w.ph, w.pw, -1};
  } else if (!LayOut(machine, data, size, forward ? ForwardLayout(op) : GradientLayout(op),
                     source.images)) {
    return false;
  } else if (forward) {
    source.images.output_row_step = w.sh;
  }
  const int channels = size.c / op.groups;
  source.group_bytes = channels * source.images.channel_bytes;
  auto* reads = machine.scratch.Take<LaneRead>(w.kh * w.kw * channels + 4);
  source.reads = reads;
  if (reads == nullptr) return false;
  LaneRead* at = reads;
  for (int i = 0; i < w.kh; ++i) {
    for (int j = 0; j < w.kw; ++j) {
      for (int c = 0; c < channels; ++c) *at++ = ReadOf(source, op, pass, i, j, c);
    }
  }
  for (int i = 0; i < 3; ++i) *at++ = {0, 0};
  return true;
}

}  // namespace

DspStatus ConvForward(Machine& machine, const DspOp& op) {
  const int group_out = op.y.c / op.groups;
  const int depth = op.window.kh * op.window.kw * (op.x.c / op.groups);
  Pixels p;
  p.grid = op.y;
  p.groups = op.groups;
  auto* spare = machine.scratch.Take(depth);
  bool fresh = false;
  if (spare == nullptr || !MakeSource(machine, op, Pass::kForward, op.in[0], p.source) ||
      !TakeWaiting(machine, group_out, p) ||
      !TakeWeights(machine, op.in[1], PackedKind::kConvForward, op.groups, group_out, depth,
                   p.weights, fresh)) {
    return DspStatus::kNoMemory;
  }
  for (int g = 0; fresh && g < op.groups; ++g) {
    PackedRows to = p.weights;
    to.words += g * group_out * to.steps;
    to.start += g * group_out;
    PackByteRows(machine.data<int8_t>(op.in[1]) + g * group_out * depth, depth, depth, spare, to);
  }
  return RunProduct(machine, op, [&](int32_t* result, RoundedSums* rounded) {
    return ProductOverPixels(machine, p, result, rounded);
  });
}

DspStatus ConvInputGradient(Machine& machine, const DspOp& op) {
  const int group_in = op.x.c / op.groups, group_out = op.y.c / op.groups;
  const int taps = op.window.kh * op.window.kw, depth = taps * group_out;
  Pixels p;
  p.grid = op.x;
  p.groups = op.groups;
  bool fresh = false;
  if (!MakeSource(machine, op, Pass::kInputGradient, op.in[0], p.source) ||
      !TakeWaiting(machine, group_in, p) ||
      !TakeWeights(machine, op.in[1], PackedKind::kConvInputGradient, op.groups, group_in, depth,
                   p.weights, fresh)) {
    return DspStatus::kNoMemory;
  }
  if (fresh) {
    const int8_t* weights = machine.data<int8_t>(op.in[1]);
    for (int g = 0; g < op.groups; ++g) {
      PackedRows to = p.weights;
      to.words += g * group_in * to.steps;
      to.start += g * group_in;
      // k runs over (tap, output channel); without a division for each.
      int tap = 0, c = 0, last = -1;
      PackRows(
          group_in, depth,
          [&](int m, int at) {
            if (at == 0) {
              tap = 0;
              c = 0;
            } else if (at != last && ++c == group_out) {
              c = 0;
              ++tap;
            }
            last = at;
            return weights[((g * group_out + c) * taps + tap) * group_in + m];
          },
          to);
    }
  }
  return RunProduct(machine, op, [&](int32_t* result, RoundedSums* rounded) {
    return ProductOverPixels(machine, p, result, rounded);
  });
}

namespace {

// One block of pixels of a weight-gradient.
struct PixelBlock {
  uint32_t first = 0;
  int count = 0;
  bool overwrites = false;
  MaxWords* largest = nullptr;
};

class WeightGradient {
 public:
  WeightGradient(Machine& machine, const DspOp& op) : machine_(machine), op_(op) {
    group_in_ = op.x.c / op.groups;
    group_out_ = op.y.c / op.groups;
    lanes_ = op.window.kh * op.window.kw * group_in_;
    positions_ = op.y.h * op.y.w;
    block_ = TileSteps(machine) * 4;
  }

  bool Begin() {
    rows_ = machine_.scratch.Take<int8_t>(static_cast<uint32_t>(group_out_) * block_);
    spare_ = machine_.scratch.Take<Vector>(Max(2 * kVectorWords, block_ / kVectorBytes));
    return MakeSource(machine_, op_, Pass::kForward, op_.in[1], source_) && rows_ != nullptr &&
           spare_ != nullptr && TakeRows(machine_.scratch, group_out_, block_, packed_) &&
           sums_.Begin(machine_, op_.out[0]);
  }

  int64_t Run() {
    const uint32_t total = op_.y.n * positions_;
    MaxWords largest;
    for (uint32_t first = 0; first < total; first += block_) {
      PixelBlock block;
      block.first = first;
      block.count = static_cast<int>(Min<uint32_t>(block_, total - first));
      block.overwrites = sums_.Expect(block.count);
      if (first + block.count == total && !sums_.is_wide()) block.largest = &largest;
      for (int g = 0; g < op_.groups; ++g) {
        PackErrors(g, block);
        for (int lane = 0; lane < lanes_; lane += kTileLanes) MultiplyLanes(g, lane, block);
      }
    }
    return sums_.Finish(largest.Result());
  }

 private:
  // The rows of A: dy of the group's channels at the block's pixels.
  void PackErrors(int g, const PixelBlock& block) {
    const uint8_t* dy = machine_.data<uint8_t>(op_.in[0]);
    uint32_t sample = block.first / positions_, at = block.first % positions_;
    for (int done = 0; done < block.count; ++sample, at = 0) {
      const int count = static_cast<int>(Min<uint32_t>(positions_ - at, block.count - done));
      for (int m = 0; m < group_out_; ++m) {
        const uint8_t* from = dy + (sample * op_.y.c + g * group_out_ + m) * positions_ + at;
        int8_t* to = rows_ + m * block_ + done;
        for (int i = 0; i < count; i += kVectorBytes) StoreBytes(to + i, Load(from + i), count - i);
      }
      done += count;
    }
    packed_.steps = (block.count + 3) / 4;
    PackByteRows(rows_, block_, block.count, reinterpret_cast<uint8_t*>(spare_), packed_);
  }

  void MultiplyLanes(int g, int lane, const PixelBlock& block) {
    const int lanes = Min(kTileLanes, lanes_ - lane);
    const int vectors = TileVectors(lanes);
    auto* b = reinterpret_cast<Vector*>(machine_.vtcm);
    Segment segments[kTileLanes];
    Vector masks[kMaxMasks];
    for (int done = 0; done < block.count; done += kVectorBytes) {
      const int count = Min(kVectorBytes, block.count - done);
      const int segment_count =
          SegmentsOf(source_.images, op_.y, block.first + done, count, segments);
      if (source_.in_place) FillMasks(source_.edges, op_.y, block.first + done, masks);
      LaneReader reader(source_.images.data + g * source_.group_bytes, segments, segment_count,
                        source_.in_place ? masks : nullptr);
      const LaneRead* reads = source_.reads + lane;
      Vector* to = b + done / 4 * vectors;
      if (segment_count == 1) {
        PackDepthRows([&](int i) { return reader.Read<1>(reads[i]); }, lanes, spare_, to);
      } else if (segment_count == 2) {
        PackDepthRows([&](int i) { return reader.Read<2>(reads[i]); }, lanes, spare_, to);
      } else {
        PackDepthRows([&](int i) { return reader.Read(reads[i]); }, lanes, spare_, to);
      }
    }
    const LaneRun run = {static_cast<uint32_t>(lane), 0, lanes};
    TileTarget target;
    target.c = sums_.sums();
    target.first = g * group_out_ * lanes_;
    target.row_elements = lanes_;
    target.runs = &run;
    target.run_count = 1;
    target.lanes = lanes;
    target.adds = !block.overwrites;
    target.largest = block.largest;
    MultiplyTile(packed_, 0, packed_.steps, true, b, target);
  }

  Machine& machine_;
  const DspOp& op_;
  int group_in_, group_out_, lanes_, block_;
  uint32_t positions_;
  Source source_;
  int8_t* rows_ = nullptr;
  Vector* spare_ = nullptr;
  PackedRows packed_;
  GradientSums sums_;
};

}  // namespace

DspStatus ConvWeightGradient(Machine& machine, const DspOp& op) {
  WeightGradient gradient(machine, op);
  if (!gradient.Begin()) return DspStatus::kNoMemory;
  const int32_t exponent = machine.tail(op.in[0]).exponent + machine.tail(op.in[1]).exponent;
  const int64_t largest = gradient.Run();
  machine.SetTail(op.out[0], exponent, largest);
  return DspStatus::kOk;
}

}  // namespace runnel::hexagon
