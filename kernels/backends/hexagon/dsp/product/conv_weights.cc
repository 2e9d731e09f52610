// The weight-gradient of convolutions has the weights of a window as lanes and output channels as
// rows, and adds over pixels, a block of them at a time.

#include "kernels/backends/hexagon/dsp/product/conv_source.h"
#include "kernels/backends/hexagon/dsp/product/pack.h"
#include "kernels/backends/hexagon/dsp/product/wide_sums.h"
#include "kernels/backends/hexagon/dsp/threads.h"

namespace runnel::hexagon {
namespace {

// One block of pixels.
struct PixelBlock {
  uint32_t first = 0;
  int count = 0;
  bool overwrites = false;
  bool is_last = false;  // of an int32 result: sums are finished
};

// A thread's own.
struct LanePart {
  TileMasks masks;
  uint8_t* vtcm = nullptr;
  MaxWords largest;
};

// Source of the lanes: x in place, or for images in place the rows of a block's pixels.
class BlockReader {
 public:
  bool Begin(Machine& machine, const DspOp& op, int block) {
    if (!MakeSource(machine, op, Pass::kForward, op.in[1], source_)) return false;
    grid_ = op.y;
    uint32_t channel_bytes = source_.images.channel_bytes;
    if (source_.in_place) {
      lead_ = source_.before;
      channel_bytes = (lead_ + block + source_.behind + 2 * kVectorBytes) / 128 * 128;
      rows_ = machine.scratch.Take(uint64_t{channel_bytes} * source_.channels);
      if (rows_ == nullptr) return false;
    }
    stride_ = static_cast<int>(channel_bytes);
    reads_ = MakeReads(machine, op, Pass::kForward, source_, channel_bytes);
    return reads_ != nullptr;
  }

  bool BeginPart(Machine& machine, LanePart& part) const {
    return !source_.in_place || part.masks.Begin(machine, source_.edges, grid_);
  }

  void BeginBlock(int group, const PixelBlock& block) {
    group_ = group;
    if (!source_.in_place) return;
    // Masks take out what lies in other samples.
    const uint32_t plane = grid_.h * grid_.w;
    const uint32_t end_sample = (block.first + block.count - 1) / plane * plane + plane;
    const uint32_t before = Min<uint32_t>(source_.before, block.first % plane);
    const uint32_t end = Min<uint32_t>(block.first + block.count + source_.behind, end_sample);
    const uint32_t begin = block.first - before;
    GatherRows(source_.images.data + group * source_.group_bytes, source_.size, source_.channels,
               begin, static_cast<int>(end - begin), rows_ + lead_ - before, stride_);
  }

  // `done`: pixels of the block before; lanes lane.. of the group's.
  void Pack(LanePart& part, const PixelBlock& block, int done, int lane, int lanes,
            Vector* b) const {
    const LaneRead* reads = reads_ + lane;
    if (source_.in_place) {
      const Vector* masks = part.masks.At(block.first + done);
      const uint8_t* rows = rows_ + lead_ + done;
      if (source_.channels % 8 != 0) {
        return PackDepthRows(
            [&](int first, Vector* v) {
              for (int i = 0; i < 8; ++i) {
                const LaneRead read = reads[first + i];
                v[i] = Q6_V_vand_VV(Load(rows + read.offset), masks[read.mask]);
              }
            },
            lanes, b);
      }
      // Eight lanes of one tap.
      const int stride = stride_;
      return PackDepthRows(
          [&](int first, Vector* v) {
            const LaneRead read = reads[first];
            const uint8_t* from = rows + read.offset;
            const Vector mask = masks[read.mask];
            for (int i = 0; i < 8; ++i, from += stride) v[i] = Q6_V_vand_VV(Load(from), mask);
          },
          lanes, b);
    }
    Segment segments[kTileLanes];
    const int count = SegmentsOf(source_.images, grid_, block.first + done,
                                 Min(kVectorBytes, block.count - done), segments);
    LaneReader reader(source_.images.data + group_ * source_.group_bytes, segments, count);
    PackDepthRows(
        [&](int first, Vector* v) {
          for (int i = 0; i < 8; ++i) v[i] = reader.Read(reads[first + i]);
        },
        lanes, b);
  }

 private:
  ConvSource source_;
  DspImages grid_;
  int group_ = 0;
  int lead_ = 0;    // bytes before a block's first pixel
  int stride_ = 0;  // from row to row
  uint8_t* rows_ = nullptr;
  const LaneRead* reads_ = nullptr;
};

class WeightGradient {
 public:
  WeightGradient(Machine& machine, const DspOp& op) : machine_(machine), op_(op) {
    group_out_ = op.y.c / op.groups;
    lanes_ = op.window.kh * op.window.kw * (op.x.c / op.groups);
    const uint64_t pixels = uint64_t{static_cast<uint32_t>(op.y.n)} * op.y.h * op.y.w;
    threads_ = Min(ThreadsFor(machine, pixels * group_out_ * lanes_ / kTileLanes), Units());
    const uint32_t share = VtcmShare(machine, threads_);
    for (uint32_t i = 0; i < threads_; ++i) parts_[i].vtcm = machine.vtcm + i * share;
    block_ = TileSteps(share) * 4;
  }

  bool Begin() {
    row_stride_ = block_ + kVectorBytes;
    rows_ = machine_.scratch.Take<int8_t>(static_cast<uint32_t>(group_out_) * row_stride_);
    if (rows_ == nullptr || !x_.Begin(machine_, op_, block_)) return false;
    if (!TakeRows(machine_.scratch, group_out_, block_, packed_)) return false;
    if (!sums_.Begin(machine_, op_.out[0])) return false;
    // With too little memory for all there are fewer. Their blocks stay: larger ones need more.
    for (uint32_t i = 0; i < threads_; ++i) {
      const uint32_t used = machine_.scratch.used();
      if (x_.BeginPart(machine_, parts_[i])) continue;
      if (i == 0) return false;
      machine_.scratch.ReleaseTo(used);
      threads_ = i;
    }
    return true;
  }

  int64_t Run() {
    const uint32_t total = op_.y.n * op_.y.h * op_.y.w;
    for (uint32_t first = 0; first < total; first += block_) {
      PixelBlock block;
      block.first = first;
      block.count = static_cast<int>(Min<uint32_t>(block_, total - first));
      block.overwrites = sums_.Expect(block.count);
      block.is_last = first + block.count == total && !sums_.is_wide();
      for (int g = 0; g < op_.groups; ++g) {
        PackErrors(g, block);
        x_.BeginBlock(g, block);
        auto body = [&](uint32_t part) { MultiplyUnits(parts_[part], part, g, block); };
        ForEachThread(threads_, body);
      }
    }
    MaxWords largest;
    for (uint32_t i = 0; i < threads_; ++i) largest.Join(parts_[i].largest);
    return sums_.Finish(largest.Result());
  }

 private:
  // The rows of A: dy of the group's channels at the block's pixels.
  void PackErrors(int g, const PixelBlock& block) {
    const uint32_t channel = g * group_out_ * op_.y.h * op_.y.w;
    GatherRows(machine_.data<uint8_t>(op_.in[0]) + channel, op_.y, group_out_, block.first,
               block.count, reinterpret_cast<uint8_t*>(rows_), row_stride_);
    packed_.steps = (block.count + 3) / 4;
    PackByteRows(rows_, row_stride_, block.count, packed_);
  }

  // Panels of rows of all tiles of lanes.
  uint32_t Units() const { return static_cast<uint32_t>(LaneTiles() * Panels()); }
  int LaneTiles() const { return (lanes_ + kTileLanes - 1) / kTileLanes; }
  int Panels() const { return (group_out_ + kPanelRows - 1) / kPanelRows; }

  void MultiplyUnits(LanePart& part, uint32_t number, int g, const PixelBlock& block) {
    const uint32_t units = Units();
    const int first = static_cast<int>(ShareBegin(units, threads_, number));
    const int end = static_cast<int>(ShareBegin(units, threads_, number + 1));
    for (int unit = first; unit < end;) {
      const int tile = unit / Panels(), panel = unit - tile * Panels();
      const int count = Min(Panels() - panel, end - unit);
      const int row = panel * kPanelRows;
      const int end_row = Min(group_out_, row + count * kPanelRows);
      MultiplyLanes(part, g, tile * kTileLanes, row, end_row - row, block);
      unit += count;
    }
  }

  void MultiplyLanes(LanePart& part, int g, int lane, int first_row, int rows,
                     const PixelBlock& block) {
    const int lanes = Min(kTileLanes, lanes_ - lane);
    auto* b = reinterpret_cast<Vector*>(part.vtcm);
    for (int done = 0; done < block.count; done += kVectorBytes) {
      x_.Pack(part, block, done, lane, lanes, b + done / 4 * TileVectors(lanes));
    }
    const LaneRun run = {static_cast<uint32_t>(lane), 0, lanes};
    PackedRows errors = packed_;
    errors.words += first_row * errors.steps;
    errors.start += first_row;
    errors.rows = rows;
    TileTarget target;
    target.c = sums_.sums();
    target.first = (g * group_out_ + first_row) * lanes_;
    target.row_elements = lanes_;
    target.runs = &run;
    target.run_count = 1;
    target.lanes = lanes;
    target.adds = !block.overwrites;
    target.largest = block.is_last ? &part.largest : nullptr;
    MultiplyTile(errors, 0, errors.steps, true, b, target);
  }

  Machine& machine_;
  const DspOp& op_;
  int group_out_, lanes_, block_;
  uint32_t threads_ = 1;
  LanePart parts_[kMaxThreads];
  int row_stride_ = 0;
  int8_t* rows_ = nullptr;
  BlockReader x_;
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
