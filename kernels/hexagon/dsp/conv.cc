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

struct Pixels {
  LaidOutImages images;
  DspImages grid;  // the result; c: of all groups
  int groups = 1;
  uint32_t group_bytes = 0;           // from group to group in the images
  const uint32_t* offsets = nullptr;  // of k in the first group
  PackedRows weights;                 // of the first group; those of the others behind it
  int32_t* result = nullptr;
};

int64_t ProductOverPixels(Machine& machine, const Pixels& p) {
  const uint32_t positions = p.grid.h * p.grid.w;
  const uint32_t total = p.grid.n * positions;
  const int tile_steps = TileSteps(machine);
  auto* b = reinterpret_cast<Vector*>(machine.vtcm);
  Segment segments[kTileLanes];
  LaneRun runs[kTileLanes];
  MaxWords largest;
  for (uint32_t first = 0; first < total; first += kTileLanes) {
    const int lanes = static_cast<int>(Min<uint32_t>(kTileLanes, total - first));
    const int segment_count = SegmentsOf(p.images, p.grid, first, lanes, segments);
    TileTarget target;
    target.row_elements = positions;
    target.runs = runs;
    target.run_count = RunsOf(first, lanes, positions, p.grid.c * positions, runs);
    target.lanes = lanes;
    for (int g = 0; g < p.groups; ++g) {
      PackedRows weights = p.weights;
      weights.words += g * weights.rows * weights.steps;
      weights.start += g * weights.rows;
      target.c = p.result + g * weights.rows * positions;
      LaneReader reader(p.images.data + g * p.group_bytes, segments, segment_count);
      for (int step = 0; step < weights.steps; step += tile_steps) {
        const int count = Min(tile_steps, weights.steps - step);
        PackLaneRows(reader, p.offsets + 4 * step, count, lanes, b);
        target.adds = step > 0;
        target.largest = step + count == weights.steps ? &largest : nullptr;
        MultiplyTile(weights, step, count, step == 0, b, target);
      }
    }
  }
  return largest.Result();
}

// Rows of `depth` for each group, with memory in the weights' packed form.
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

template <typename Value>
void PackGroups(int groups, int depth, const PackedRows& packed, const Value& value) {
  for (int g = 0; g < groups; ++g) {
    PackedRows to = packed;
    to.words += g * packed.rows * packed.steps;
    to.start += g * packed.rows;
    PackRows(
        packed.rows, depth, [&](int m, int k) { return value(g, m, k); }, to);
  }
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

// Where each weight of a group's window, (tap, channel) in order, reads; with room for whole steps.
uint32_t* WindowOffsets(Machine& machine, const DspOp& op, const LaidOutImages& images) {
  const int channels = op.x.c / op.groups;
  const int depth = op.window.kh * op.window.kw * channels;
  auto* offsets = machine.scratch.Take<uint32_t>(depth + 4);
  if (offsets == nullptr) return nullptr;
  int k = 0;
  for (int i = 0; i < op.window.kh; ++i) {
    for (int j = 0; j < op.window.kw; ++j) {
      for (int c = 0; c < channels; ++c) offsets[k++] = images.OffsetOf(c, i, j);
    }
  }
  while (k % 4 != 0) offsets[k++] = 0;
  return offsets;
}

}  // namespace

DspStatus ConvForward(Machine& machine, const DspOp& op) {
  const int group_in = op.x.c / op.groups, group_out = op.y.c / op.groups;
  const int depth = op.window.kh * op.window.kw * group_in;
  Pixels p;
  p.grid = op.y;
  p.groups = op.groups;
  p.result = machine.data<int32_t>(op.out[0]);
  if (!LayOut(machine, machine.data<uint8_t>(op.in[0]), op.x, ForwardLayout(op), p.images)) {
    return DspStatus::kNoMemory;
  }
  p.images.output_row_step = op.window.sh;
  p.group_bytes = group_in * p.images.channel_bytes;
  p.offsets = WindowOffsets(machine, op, p.images);
  bool fresh = false;
  if (p.offsets == nullptr || !TakeWeights(machine, op.in[1], PackedKind::kConvForward, op.groups,
                                           group_out, depth, p.weights, fresh)) {
    return DspStatus::kNoMemory;
  }
  if (fresh) {
    const int8_t* weights = machine.data<int8_t>(op.in[1]);
    PackGroups(op.groups, depth, p.weights,
               [&](int g, int m, int k) { return weights[(g * group_out + m) * depth + k]; });
  }
  const int32_t exponent = machine.tail(op.in[0]).exponent + machine.tail(op.in[1]).exponent;
  machine.SetTail(op.out[0], exponent, ProductOverPixels(machine, p));
  return DspStatus::kOk;
}

// dx[c][i] = sum over taps and output channels of dy[(i + padding - tap) / stride] * w: a
// convolution of dy with stride - 1 zeros between its pixels, whose plane begins kernel - 1 before
// its first pixel.
DspStatus ConvInputGradient(Machine& machine, const DspOp& op) {
  const DspWindow& w = op.window;
  const int group_in = op.x.c / op.groups, group_out = op.y.c / op.groups;
  const int taps = w.kh * w.kw, depth = taps * group_out;
  ImageLayout layout;
  layout.top = w.kh - 1;
  layout.left = w.kw - 1;
  layout.row_step = w.sh;
  layout.column_step = w.sw;
  layout.rows = op.x.h + w.ph + w.kh - 1;
  layout.columns = op.x.w + w.pw + w.kw - 1;
  Pixels p;
  p.grid = op.x;
  p.groups = op.groups;
  p.result = machine.data<int32_t>(op.out[0]);
  auto* offsets = machine.scratch.Take<uint32_t>(depth + 4);
  bool fresh = false;
  if (offsets == nullptr ||
      !LayOut(machine, machine.data<uint8_t>(op.in[0]), op.y, layout, p.images) ||
      !TakeWeights(machine, op.in[1], PackedKind::kConvInputGradient, op.groups, group_in, depth,
                   p.weights, fresh)) {
    return DspStatus::kNoMemory;
  }
  p.offsets = offsets;
  p.group_bytes = group_out * p.images.channel_bytes;
  int k = 0;
  for (int i = 0; i < w.kh; ++i) {
    for (int j = 0; j < w.kw; ++j) {
      for (int c = 0; c < group_out; ++c) {
        offsets[k++] = p.images.OffsetOf(c, w.ph + w.kh - 1 - i, w.pw + w.kw - 1 - j);
      }
    }
  }
  while (k % 4 != 0) offsets[k++] = 0;
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
  const int32_t exponent = machine.tail(op.in[0]).exponent + machine.tail(op.in[1]).exponent;
  machine.SetTail(op.out[0], exponent, ProductOverPixels(machine, p));
  return DspStatus::kOk;
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
    if (!LayOut(machine_, machine_.data<uint8_t>(op_.in[1]), op_.x, ForwardLayout(op_), images_)) {
      return false;
    }
    images_.output_row_step = op_.window.sh;
    offsets_ = WindowOffsets(machine_, op_, images_);
    rows_ = machine_.scratch.Take<int8_t>(static_cast<uint32_t>(group_out_) * block_);
    spare_ = machine_.scratch.Take<Vector>(2 * kVectorWords);
    return offsets_ != nullptr && rows_ != nullptr && spare_ != nullptr &&
           TakeRows(machine_.scratch, group_out_, block_, packed_) &&
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
    PackRows(
        group_out_, block.count, [&](int m, int k) { return rows_[m * block_ + k]; }, packed_);
  }

  void MultiplyLanes(int g, int lane, const PixelBlock& block) {
    const int lanes = Min(kTileLanes, lanes_ - lane);
    const int vectors = TileVectors(lanes);
    auto* b = reinterpret_cast<Vector*>(machine_.vtcm);
    Segment segments[kTileLanes];
    for (int done = 0; done < block.count; done += kVectorBytes) {
      const int count = Min(kVectorBytes, block.count - done);
      const int segment_count = SegmentsOf(images_, op_.y, block.first + done, count, segments);
      LaneReader reader(images_.data + g * group_in_ * images_.channel_bytes, segments,
                        segment_count);
      PackDepthRows([&](int i) { return reader.Read(offsets_[lane + i]); }, lanes, spare_,
                    b + done / 4 * vectors);
    }
    const LaneRun run = {static_cast<uint32_t>(lane), 0, lanes};
    TileTarget target;
    target.c = sums_.sums() + g * group_out_ * lanes_;
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
  LaidOutImages images_;
  const uint32_t* offsets_ = nullptr;
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
