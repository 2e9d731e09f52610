// Forward and input-gradient of convolutions have neighbouring pixels as lanes, so that the result
// is in the row-major order of its images, and weights as rows.

#include "kernels/backends/hexagon/dsp/product/lane_quads.h"
#include "kernels/backends/hexagon/dsp/product/pack.h"
#include "kernels/backends/hexagon/dsp/product/packed_weights.h"
#include "kernels/backends/hexagon/packed_sizes.h"

namespace runnel::hexagon {
namespace {

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
  ConvSource source;
  bool has_quads = false;  // else `reads`
  LaneQuads quads;
  const LaneRead* reads = nullptr;  // reads of the first group, for whole steps
  TileMasks masks;
  DspImages grid;  // the result; c: of all groups
  int groups = 1;
  PackedRows weights;  // rows of the first group; those of the others behind it
  Vector* waiting = nullptr;
};

// Packs the inputs of a tile of outputs.
class TilePacker {
 public:
  TilePacker(Pixels& p, uint32_t first, int lanes)
      : p_(p),
        first_(first),
        lanes_(lanes),
        masks_(p.source.in_place ? p.masks.At(first) : nullptr) {
    if (!p.has_quads) count_ = SegmentsOf(p.source.images, p.grid, first, lanes, segments_);
  }
  void BeginGroup(int group) {
    group_ = group;
    if (p_.has_quads) p_.quads.Fill(group, first_, lanes_);
  }
  void Pack(int step, int count, Vector* b) {
    if (p_.has_quads) return p_.quads.Pack(step, count, lanes_, masks_, b);
    LaneReader reader(p_.source.images.data + group_ * p_.source.group_bytes, segments_, count_,
                      masks_);
    PackLaneRows(reader, p_.reads + 4 * step, count, lanes_, b);
  }

 private:
  Pixels& p_;
  const uint32_t first_;
  const int lanes_;
  const Vector* const masks_;
  int group_ = 0;
  int count_ = 0;
  Segment segments_[kTileLanes];
};

// Writes to `result`, or to `rounded`.
int64_t ProductOverPixels(Machine& machine, Pixels& p, int32_t* result, RoundedSums* rounded) {
  const uint32_t positions = p.grid.h * p.grid.w;
  const uint32_t total = p.grid.n * positions;
  const int tile_steps = TileSteps(machine);
  auto* b = reinterpret_cast<Vector*>(machine.vtcm);
  LaneRun runs[kTileLanes];
  MaxWords largest;
  for (uint32_t first = 0; first < total; first += kTileLanes) {
    const int lanes = static_cast<int>(Min<uint32_t>(kTileLanes, total - first));
    TilePacker packer(p, first, lanes);
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
      packer.BeginGroup(g);
      for (int step = 0; step < weights.steps; step += tile_steps) {
        const int count = Min(tile_steps, weights.steps - step);
        packer.Pack(step, count, b);
        target.takes = step > 0;
        target.waits = step + count < weights.steps;
        target.largest = target.waits ? nullptr : &largest;
        MultiplyTile(weights, step, count, step == 0, b, target);
      }
    }
  }
  return largest.Result();
}

// The result is op.y's images, or op.x's for the input-gradient. False: there is no memory.
bool BeginPixels(Machine& machine, const DspOp& op, Pass pass, Pixels& p) {
  p.grid = pass == Pass::kForward ? op.y : op.x;
  p.groups = op.groups;
  if (!MakeSource(machine, op, pass, op.in[0], p.source)) return false;
  if (p.source.in_place && !p.masks.Begin(machine, p.source.edges, p.grid)) return false;
  p.has_quads = LaneQuads::Fits(p.source);
  if (p.has_quads) {
    if (!p.quads.Begin(machine, p.source)) return false;
  } else {
    p.reads = MakeReads(machine, op, pass, p.source, p.source.images.channel_bytes);
    if (p.reads == nullptr) return false;
  }
  p.waiting = machine.scratch.Take<Vector>(4 * (p.grid.c / p.groups));
  return p.waiting != nullptr;
}

// Rows of `depth` for each group, with memory in the weights' packed form. The last that an
// operation takes: if it is fresh, nothing may keep the operation from filling it.
bool TakeWeights(Machine& machine, const DspOp& op, PackedKind kind, int groups, int rows,
                 int depth, PackedRows& packed, bool& fresh) {
  packed.rows = rows;
  packed.steps = (depth + 3) / 4;
  // The products read ahead: the starts lie first.
  const uint32_t start_bytes = PackedStartBytes(groups, rows);
  const uint32_t bytes = PackedRowBytes(groups, rows, depth);
  uint8_t* memory = PackedWeights(machine, op, kind, bytes, fresh);
  if (memory == nullptr) return false;
  packed.start = reinterpret_cast<int32_t*>(memory);
  packed.words = reinterpret_cast<int32_t*>(memory + start_bytes);
  return true;
}

}  // namespace

DspStatus ConvForward(Machine& machine, const DspOp& op) {
  const int group_out = op.y.c / op.groups;
  const int depth = op.window.kh * op.window.kw * (op.x.c / op.groups);
  Pixels p;
  bool fresh = false;
  if (!BeginPixels(machine, op, Pass::kForward, p) ||
      !TakeWeights(machine, op, PackedKind::kConvForward, op.groups, group_out, depth, p.weights,
                   fresh)) {
    return DspStatus::kNoMemory;
  }
  for (int g = 0; fresh && g < op.groups; ++g) {
    PackedRows to = p.weights;
    to.words += g * group_out * to.steps;
    to.start += g * group_out;
    PackByteRows(machine.data<int8_t>(op.in[1]) + g * group_out * depth, depth, depth, to);
  }
  return RunProduct(machine, op, [&](int32_t* result, RoundedSums* rounded) {
    return ProductOverPixels(machine, p, result, rounded);
  });
}

DspStatus ConvInputGradient(Machine& machine, const DspOp& op) {
  const int group_in = op.x.c / op.groups, group_out = op.y.c / op.groups;
  const int taps = op.window.kh * op.window.kw, depth = taps * group_out;
  Pixels p;
  bool fresh = false;
  uint8_t* spare = machine.scratch.Take(ColumnSpare(group_in));
  if (spare == nullptr || !BeginPixels(machine, op, Pass::kInputGradient, p) ||
      !TakeWeights(machine, op, PackedKind::kConvInputGradient, op.groups, group_in, depth,
                   p.weights, fresh)) {
    return DspStatus::kNoMemory;
  }
  const int8_t* weights = machine.data<int8_t>(op.in[1]);
  for (int g = 0; fresh && g < op.groups; ++g) {
    PackedRows to = p.weights;
    to.words += g * group_in * to.steps;
    to.start += g * group_in;
    // k runs over (tap, output channel).
    const ByteColumns columns = {weights + g * group_out * taps * group_in, group_out,
                                 taps * group_in, group_in};
    PackByteColumns(columns, depth, spare, to);
  }
  return RunProduct(machine, op, [&](int32_t* result, RoundedSums* rounded) {
    return ProductOverPixels(machine, p, result, rounded);
  });
}

}  // namespace runnel::hexagon
