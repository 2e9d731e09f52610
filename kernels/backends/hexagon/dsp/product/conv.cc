// Forward and input-gradient of convolutions have neighbouring pixels as lanes, so that the result
// is in the row-major order of its images, and weights as rows.

#include "kernels/backends/hexagon/dsp/product/lane_quads.h"
#include "kernels/backends/hexagon/dsp/product/pack.h"
#include "kernels/backends/hexagon/dsp/product/packed_weights.h"
#include "kernels/backends/hexagon/dsp/threads.h"
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
  bool has_quads = false;           // else `reads`
  const LaneRead* reads = nullptr;  // reads of the first group, for whole steps
  DspImages grid;                   // the result; c: of all groups
  int groups = 1;
  PackedRows weights;  // rows of the first group; those of the others behind it
};

// A thread's own.
struct PixelPart {
  LaneQuads quads;
  TileMasks masks;
  Vector* waiting = nullptr;
  uint8_t* vtcm = nullptr;
  MaxWords largest;
};

// Packs the inputs of a tile of outputs.
class TilePacker {
 public:
  TilePacker(const Pixels& p, PixelPart& part, uint32_t first, int lanes)
      : p_(p),
        part_(part),
        first_(first),
        lanes_(lanes),
        masks_(p.source.in_place ? part.masks.At(first) : nullptr) {
    if (!p.has_quads) count_ = SegmentsOf(p.source.images, p.grid, first, lanes, segments_);
  }
  void BeginGroup(int group) {
    group_ = group;
    if (p_.has_quads) part_.quads.Fill(group, first_, lanes_);
  }
  void Pack(int step, int count, Vector* b) {
    if (p_.has_quads) return part_.quads.Pack(step, count, lanes_, masks_, b);
    LaneReader reader(p_.source.images.data + group_ * p_.source.group_bytes, segments_, count_,
                      masks_);
    PackLaneRows(reader, p_.reads + 4 * step, count, lanes_, b);
  }

 private:
  const Pixels& p_;
  PixelPart& part_;
  const uint32_t first_;
  const int lanes_;
  const Vector* const masks_;
  int group_ = 0;
  int count_ = 0;
  Segment segments_[kTileLanes];
};

// Packed weights that stay in the L2 cache while the tiles go by, beside what a tile reads and writes.
// The smallest L2 has 1 MiB.
constexpr uint32_t kCachedWeights = 640 << 10;

// Steps of a panel that are worth asking for ahead.
constexpr int kFetchedSteps = 128;

// The tiles of a product, cut into as many parts as threads have use for: each part takes panels of
// six rows of one tile after the other, of grouped products whole tiles. Weights that do not fit the
// cache are taken a block of panels after the other, through all tiles: each tile is packed for each
// block, but the weights come from memory once, not for each tile.
class PixelTiles {
 public:
  // False: there is no memory.
  bool Begin(Machine& machine, const Pixels& p) {
    p_ = &p;
    positions_ = p.grid.h * p.grid.w;
    total_ = p.grid.n * positions_;
    panels_ = p.groups > 1 ? 1 : (p.weights.rows + kPanelRows - 1) / kPanelRows;
    tiles_ = (total_ + kTileLanes - 1) / kTileLanes;
    block_panels_ = BlockPanels(static_cast<uint32_t>(p.weights.steps) * kPanelRows * 4);
    const uint64_t products =
        uint64_t{total_} * p.grid.c * static_cast<uint32_t>(p.weights.steps) / kVectorWords;
    threads_ = Min(ThreadsFor(machine, products), tiles_ * block_panels_);
    // With too little memory for all there are fewer.
    for (uint32_t i = 0; i < threads_; ++i) {
      const uint32_t used = machine.scratch.used();
      if (BeginPart(machine, parts_[i])) continue;
      if (i == 0) return false;
      machine.scratch.ReleaseTo(used);
      threads_ = i;
    }
    vtcm_bytes_ = VtcmShare(machine, threads_);
    for (uint32_t i = 0; i < threads_; ++i) parts_[i].vtcm = machine.vtcm + i * vtcm_bytes_;
    return true;
  }

  // Writes to `result`, or to `rounded`. The largest |sum|.
  int64_t Run(int32_t* result, RoundedSums* rounded) {
    RoundedSums* sums[kMaxThreads];
    alignas(kVectorBytes) uint8_t copies[kMaxThreads][sizeof(RoundedSums)];
    for (uint32_t i = 0; i < threads_; ++i) {
      parts_[i].largest = MaxWords();
      sums[i] = nullptr;
      if (rounded == nullptr) continue;
      sums[i] = reinterpret_cast<RoundedSums*>(copies[i]);
      *sums[i] = *rounded;
      sums[i]->saturated = Q6_V_vzero();
    }
    auto body = [&](uint32_t part) { RunPart(part, result, sums[part]); };
    ForEachThread(threads_, body);
    MaxWords largest;
    for (uint32_t i = 0; i < threads_; ++i) {
      largest.Join(parts_[i].largest);
      if (rounded == nullptr) continue;
      rounded->saturated = Q6_Vw_vadd_VwVw(rounded->saturated, sums[i]->saturated);
    }
    return largest.Result();
  }

 private:
  bool BeginPart(Machine& machine, PixelPart& part) {
    const ConvSource& source = p_->source;
    if (source.in_place && !part.masks.Begin(machine, source.edges, p_->grid)) return false;
    if (p_->has_quads && !part.quads.Begin(machine, source)) return false;
    part.waiting = machine.scratch.Take<Vector>(4 * (p_->grid.c / p_->groups));
    return part.waiting != nullptr;
  }

  // Panels in a block, of so many bytes each.
  uint32_t BlockPanels(uint32_t panel_bytes) const {
    if (p_->groups > 1 || tiles_ == 1 || panels_ * panel_bytes <= kCachedWeights) return panels_;
    const uint32_t blocks = (panels_ * panel_bytes + kCachedWeights - 1) / kCachedWeights;
    // Even: tiles of 64 lanes take two panels at once.
    return ((panels_ + blocks - 1) / blocks + 1) / 2 * 2;
  }

  // All threads are in the same block at about the same time.
  void RunPart(uint32_t number, int32_t* result, RoundedSums* rounded) {
    for (uint32_t first = 0; first < panels_; first += block_panels_) {
      const uint32_t panels = Min(block_panels_, panels_ - first), units = tiles_ * panels;
      const uint32_t end = ShareBegin(units, threads_, number + 1);
      for (uint32_t unit = ShareBegin(units, threads_, number); unit < end;) {
        const uint32_t tile = unit / panels, panel = unit % panels;
        const uint32_t count = Min(panels - panel, end - unit);
        RunTile(parts_[number], tile * kTileLanes, RowOf(first + panel),
                RowOf(first + panel + count) - RowOf(first + panel), result, rounded);
        unit += count;
      }
    }
  }
  int RowOf(uint32_t panel) const {
    return panel >= panels_ ? p_->weights.rows : static_cast<int>(panel * kPanelRows);
  }

  void RunTile(PixelPart& part, uint32_t first, int first_row, int rows, int32_t* result,
               RoundedSums* rounded) {
    const Pixels& p = *p_;
    const int tile_steps = TileSteps(vtcm_bytes_);
    auto* b = reinterpret_cast<Vector*>(part.vtcm);
    LaneRun runs[kTileLanes];
    const int lanes = static_cast<int>(Min<uint32_t>(kTileLanes, total_ - first));
    TilePacker packer(p, part, first, lanes);
    TileTarget target;
    target.row_elements = positions_;
    target.runs = runs;
    target.run_count = RunsOf(first, lanes, positions_, p.grid.c * positions_, runs);
    target.lanes = lanes;
    target.waiting = part.waiting;
    target.c = result;
    target.rounded = rounded;
    for (int g = 0; g < p.groups; ++g) {
      PackedRows weights = p.weights;
      const int row = g * weights.rows + first_row;
      weights.words += row * weights.steps;
      weights.start += row;
      weights.rows = rows;
      target.first = row * positions_;
      FetchPanel(weights, 0, tile_steps);
      packer.BeginGroup(g);
      for (int step = 0; step < weights.steps; step += tile_steps) {
        const int count = Min(tile_steps, weights.steps - step);
        packer.Pack(step, count, b);
        target.takes = step > 0;
        target.waits = step + count < weights.steps;
        target.largest = target.waits ? nullptr : &part.largest;
        MultiplyTile(weights, step, count, step == 0, b, target);
      }
    }
  }

  const Pixels* p_ = nullptr;
  uint32_t positions_ = 0, total_ = 0;
  uint32_t tiles_ = 0;
  uint32_t panels_ = 1;        // of a tile; of grouped products 1 for all rows
  uint32_t block_panels_ = 1;  // of these, in a block
  uint32_t threads_ = 1;
  uint32_t vtcm_bytes_ = 0;  // of a part
  PixelPart parts_[kMaxThreads];
};

// The result is op.y's images, or op.x's for the input-gradient; the weights are `rows` of `depth`
// for each group. False: there is no memory.
bool BeginPixels(Machine& machine, const DspOp& op, Pass pass, int rows, int depth, Pixels& p) {
  p.weights.rows = rows;
  p.weights.steps = (depth + 3) / 4;
  p.weights.fetches = p.weights.steps >= kFetchedSteps;
  p.grid = pass == Pass::kForward ? op.y : op.x;
  p.groups = op.groups;
  if (!MakeSource(machine, op, pass, op.in[0], p.source)) return false;
  p.has_quads = LaneQuads::Fits(p.source);
  if (p.has_quads) return true;
  p.reads = MakeReads(machine, op, pass, p.source, p.source.images.channel_bytes);
  return p.reads != nullptr;
}

// Memory for the rows of all groups in the weights' packed form. The last that an operation takes:
// if it is fresh, nothing may keep the operation from filling it.
bool TakeWeights(Machine& machine, const DspOp& op, PackedKind kind, int depth, PackedRows& packed,
                 bool& fresh) {
  // The products read ahead: the starts lie first.
  const uint32_t start_bytes = PackedStartBytes(op.groups, packed.rows);
  const uint32_t bytes = PackedRowBytes(op.groups, packed.rows, depth);
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
  PixelTiles tiles;
  bool fresh = false;
  if (!BeginPixels(machine, op, Pass::kForward, group_out, depth, p) || !tiles.Begin(machine, p) ||
      !TakeWeights(machine, op, PackedKind::kConvForward, depth, p.weights, fresh)) {
    return DspStatus::kNoMemory;
  }
  for (int g = 0; fresh && g < op.groups; ++g) {
    PackedRows to = p.weights;
    to.words += g * group_out * to.steps;
    to.start += g * group_out;
    PackByteRows(machine.data<int8_t>(op.in[1]) + g * group_out * depth, depth, depth, to);
  }
  return RunProduct(machine, op, [&](int32_t* result, RoundedSums* rounded) {
    return tiles.Run(result, rounded);
  });
}

DspStatus ConvInputGradient(Machine& machine, const DspOp& op) {
  const int group_in = op.x.c / op.groups, group_out = op.y.c / op.groups;
  const int taps = op.window.kh * op.window.kw, depth = taps * group_out;
  Pixels p;
  PixelTiles tiles;
  bool fresh = false;
  uint8_t* spare = machine.scratch.Take(ColumnSpare(group_in));
  if (spare == nullptr || !BeginPixels(machine, op, Pass::kInputGradient, group_in, depth, p) ||
      !tiles.Begin(machine, p) ||
      !TakeWeights(machine, op, PackedKind::kConvInputGradient, depth, p.weights, fresh)) {
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
    return tiles.Run(result, rounded);
  });
}

}  // namespace runnel::hexagon
