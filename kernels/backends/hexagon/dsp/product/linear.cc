// Linear layers: samples are rows, outputs (or, in the input-gradient, inputs) are lanes, and the
// weights, packed once a version, stream through VTCM.

#include "kernels/backends/hexagon/dsp/product/pack.h"
#include "kernels/backends/hexagon/dsp/product/packed_weights.h"
#include "kernels/backends/hexagon/dsp/product/wide_sums.h"

namespace runnel::hexagon {
namespace {

constexpr Segment kAllLanes = {0, 0, kTileLanes};

// B as tiles of lanes behind each other, each of `steps` steps.
struct StreamedLanes {
  const uint8_t* tiles = nullptr;
  int lanes = 0;
  int steps = 0;

  uint32_t TileBytes(int lane) const {
    return TileVectors(Min(kTileLanes, lanes - lane)) * steps * kVectorBytes;
  }
  uint32_t bytes() const {
    uint32_t bytes = 0;
    for (int lane = 0; lane < lanes; lane += kTileLanes) bytes += TileBytes(lane);
    return bytes;
  }
};

// A piece of a tile that is in VTCM at a time.
struct Piece {
  const uint8_t* from = nullptr;
  int lane = 0, step = 0, steps = 0;
  uint32_t bytes = 0;
};

class Pieces {
 public:
  Pieces(const StreamedLanes& b, int steps_at_once)
      : b_(b), steps_at_once_(steps_at_once), at_(b.tiles) {}
  bool Next(Piece& piece) {
    if (lane_ >= b_.lanes) return false;
    const uint32_t step_bytes = TileVectors(Min(kTileLanes, b_.lanes - lane_)) * kVectorBytes;
    piece.lane = lane_;
    piece.step = step_;
    piece.steps = Min(steps_at_once_, b_.steps - step_);
    piece.bytes = piece.steps * step_bytes;
    piece.from = at_;
    at_ += piece.bytes;
    step_ += piece.steps;
    if (step_ == b_.steps) {
      step_ = 0;
      lane_ += kTileLanes;
    }
    return true;
  }

 private:
  const StreamedLanes& b_;
  int steps_at_once_;
  const uint8_t* at_;
  int lane_ = 0, step_ = 0;
};

// Target of a product: C, or rounded sums, with memory for sums that wait.
struct StreamTarget {
  int32_t* c = nullptr;
  RoundedSums* rounded = nullptr;
  Vector* waiting = nullptr;  // 4 a row
};

// [rows of a][lanes of b]. The next piece comes beside the products of this one.
int64_t StreamProduct(Machine& machine, const PackedRows& a, const StreamedLanes& b,
                      const StreamTarget& to) {
  const uint32_t half = machine.vtcm_bytes / 2;
  const int at_once = Max(1, static_cast<int>(half / (kTileLanes * 4)) - 2);
  Pieces pieces(b, at_once);
  uint8_t* buffers[2] = {machine.vtcm, machine.vtcm + half / kVectorBytes * kVectorBytes};
  Piece piece, next;
  bool more = pieces.Next(piece);
  BeginCopy(buffers[0], piece.from, piece.bytes);
  MaxWords largest;
  for (int turn = 0; more; turn ^= 1) {
    AwaitCopy();
    more = pieces.Next(next);
    if (more) BeginCopy(buffers[turn ^ 1], next.from, next.bytes);
    TileTarget target;
    target.c = to.c;
    target.rounded = to.rounded;
    target.waiting = to.waiting;
    target.row_elements = b.lanes;
    target.lanes = Min(kTileLanes, b.lanes - piece.lane);
    const LaneRun run = {static_cast<uint32_t>(piece.lane), 0, target.lanes};
    target.runs = &run;
    target.run_count = 1;
    const bool finished = piece.step + piece.steps >= a.steps;
    if (to.rounded != nullptr) {
      target.takes = piece.step > 0;
      target.waits = !finished;
    } else {
      target.adds = piece.step > 0;
    }
    target.largest = finished ? &largest : nullptr;
    MultiplyTile(a, piece.step, piece.steps, piece.step == 0,
                 reinterpret_cast<const Vector*>(buffers[turn]), target);
    piece = next;
  }
  return largest.Result();
}

DspStatus RunStream(Machine& machine, const DspOp& op, const PackedRows& a,
                    const StreamedLanes& b) {
  auto* waiting = machine.scratch.Take<Vector>(4 * a.rows);
  if (waiting == nullptr) return DspStatus::kNoMemory;
  return RunProduct(machine, op, [&](int32_t* result, RoundedSums* rounded) {
    return StreamProduct(machine, a, b, {result, rounded, waiting});
  });
}

// Rows of `depth` bytes, samples or errors, for so many steps.
bool PackSamples(Machine& machine, const int8_t* values, int rows, int depth, int steps,
                 PackedRows& packed) {
  if (!TakeRows(machine.scratch, rows, 4 * steps, packed)) return false;
  PackByteRows(values, depth, depth, packed);
  return true;
}

LaneRead* RowReads(Machine& machine, int rows, int row_bytes) {
  auto* reads = machine.scratch.Take<LaneRead>(rows + 4);
  if (reads == nullptr) return nullptr;
  for (int k = 0; k < rows + 4; ++k) reads[k] = {k < rows ? k * row_bytes : 0, 0};
  return reads;
}

}  // namespace

DspStatus LinearForward(Machine& machine, const DspOp& op) {
  const int samples = op.x.n, inputs = op.x.c, outputs = op.y.c;
  StreamedLanes b;
  b.lanes = outputs;
  // Packed 32 steps at a time: A has as many, the last of them 0.
  b.steps = (inputs + kVectorBytes - 1) / kVectorBytes * 32;
  bool fresh = false;
  uint8_t* tiles = PackedWeights(machine, op, PackedKind::kLinear, b.bytes(), fresh);
  if (tiles == nullptr) return DspStatus::kNoMemory;
  const uint8_t* weights = machine.data<uint8_t>(op.in[1]);
  auto* to = reinterpret_cast<Vector*>(tiles);
  for (int lane = 0; fresh && lane < outputs; lane += kTileLanes) {
    const int lanes = Min(kTileLanes, outputs - lane);
    for (int k = 0; k < 4 * b.steps; k += kVectorBytes) {
      PackDepthRows(
          [&](int first, Vector* rows) {
            const uint8_t* row = weights + (lane + first) * inputs + k;
            for (int i = 0; i < 8; ++i) {
              rows[i] = Load(row);
              // The last 32 are made whole by repeating the last one.
              if (first + i + 1 < lanes) row += inputs;
            }
          },
          lanes, to);
      to += 32 * TileVectors(lanes);
    }
  }
  b.tiles = tiles;
  PackedRows a;
  if (!PackSamples(machine, machine.data<int8_t>(op.in[0]), samples, inputs, b.steps, a)) {
    return DspStatus::kNoMemory;
  }
  return RunStream(machine, op, a, b);
}

DspStatus LinearInputGradient(Machine& machine, const DspOp& op) {
  const int samples = op.x.n, inputs = op.x.c, outputs = op.y.c;
  PackedRows a;
  LaneRead* reads = RowReads(machine, outputs, inputs);
  if (reads == nullptr || !PackSamples(machine, machine.data<int8_t>(op.in[0]), samples, outputs,
                                       (outputs + 3) / 4, a)) {
    return DspStatus::kNoMemory;
  }
  StreamedLanes b;
  b.lanes = inputs;
  b.steps = a.steps;
  bool fresh = false;
  uint8_t* tiles = PackedWeights(machine, op, PackedKind::kLinearGradient, b.bytes(), fresh);
  if (tiles == nullptr) return DspStatus::kNoMemory;
  const uint8_t* weights = machine.data<uint8_t>(op.in[1]);
  uint8_t* to = tiles;
  for (int lane = 0; fresh && lane < inputs; lane += kTileLanes) {
    LaneReader reader(weights + lane, &kAllLanes, 1);
    PackLaneRows(reader, reads, a.steps, Min(kTileLanes, inputs - lane),
                 reinterpret_cast<Vector*>(to));
    to += b.TileBytes(lane);
  }
  b.tiles = tiles;
  return RunStream(machine, op, a, b);
}

DspStatus LinearWeightGradient(Machine& machine, const DspOp& op) {
  const int samples = op.x.n, inputs = op.x.c, outputs = op.y.c;
  const int8_t* dy = machine.data<int8_t>(op.in[0]);
  const uint8_t* x = machine.data<uint8_t>(op.in[1]);
  GradientSums sums;
  PackedRows a;
  StreamedLanes b;
  b.lanes = inputs;
  b.steps = (samples + 3) / 4;
  LaneRead* reads = RowReads(machine, samples, inputs);
  uint8_t* tiles = machine.scratch.Take(b.bytes());
  uint8_t* spare = machine.scratch.Take(ColumnSpare(outputs));
  if (reads == nullptr || tiles == nullptr || spare == nullptr || !sums.Begin(machine, op.out[0]) ||
      !TakeRows(machine.scratch, outputs, samples, a)) {
    return DspStatus::kNoMemory;
  }
  PackByteColumns({dy, samples, outputs, 0}, samples, spare, a);
  uint8_t* to = tiles;
  for (int lane = 0; lane < inputs; lane += kTileLanes) {
    LaneReader reader(x + lane, &kAllLanes, 1);
    PackLaneRows(reader, reads, b.steps, Min(kTileLanes, inputs - lane),
                 reinterpret_cast<Vector*>(to));
    to += b.TileBytes(lane);
  }
  b.tiles = tiles;
  sums.Expect(samples);
  const int64_t largest = sums.Finish(StreamProduct(machine, a, b, {sums.sums()}));
  machine.SetTail(op.out[0], machine.tail(op.in[0]).exponent + machine.tail(op.in[1]).exponent,
                  largest);
  return DspStatus::kOk;
}

}  // namespace runnel::hexagon
