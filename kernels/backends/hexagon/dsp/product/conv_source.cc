#include "kernels/backends/hexagon/dsp/product/conv_source.h"

#include "kernels/backends/hexagon/dsp/product/product.h"

namespace runnel::hexagon {
namespace {

ImageLayout ForwardLayout(const DspOp& op) {
  const DspWindow& w = op.window;
  ImageLayout layout;
  layout.top = w.ph;
  layout.left = w.pw;
  layout.rows = Max(op.x.h + 2 * w.ph, (op.y.h - 1) * w.sh + w.kh);
  layout.columns = Max(op.x.w + 2 * w.pw, (op.y.w - 1) * w.sw + w.kw);
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

// The read of tap (i, j) in the first channel.
LaneRead ReadOf(const ConvSource& source, const DspOp& op, Pass pass, int i, int j) {
  const DspWindow& w = op.window;
  if (source.in_place) {
    return {source.OffsetOf(i, j), ConvSource::MaskOf(i * w.kw + j)};
  }
  const LaidOutImages& images = source.images;
  return {pass == Pass::kForward ? images.OffsetOf(0, i, j)
                                 : images.OffsetOf(0, w.ph + w.kh - 1 - i, w.pw + w.kw - 1 - j),
          0};
}

bool FitsInPlace(const DspOp& op) {
  const DspWindow& w = op.window;
  return w.sh == 1 && w.sw == 1 && op.x.h == op.y.h && op.x.w == op.y.w &&
         Max(op.x.h, op.x.w) <= kMaxMaskedSide && w.kh * w.kw < kMaxMasks;
}

}  // namespace

int TileSteps(uint32_t vtcm_bytes) {
  const int steps = static_cast<int>(vtcm_bytes / (kTileLanes * 4)) - 2;
  return Max(32, steps / 32 * 32);
}

bool MakeSource(Machine& machine, const DspOp& op, Pass pass, const DspTensor& images,
                ConvSource& source) {
  const DspWindow& w = op.window;
  const bool forward = pass == Pass::kForward;
  source.size = forward ? op.x : op.y;
  source.taps = w.kh * w.kw;
  source.channels = source.size.c / op.groups;
  const uint8_t* data = machine.data<uint8_t>(images);
  source.in_place = FitsInPlace(op);
  if (source.in_place) {
    source.images = InPlace(data, source.size);
    source.edges =
        forward ? EdgeMasks{w.kh, w.kw, -w.ph, -w.pw, 1} : EdgeMasks{w.kh, w.kw, w.ph, w.pw, -1};
    const int first = source.OffsetOf(0, 0), last = source.OffsetOf(w.kh - 1, w.kw - 1);
    source.before = Max(0, -Min(first, last));
    source.behind = Max(0, Max(first, last));
  } else if (!LayOut(machine, data, source.size, forward ? ForwardLayout(op) : GradientLayout(op),
                     source.images)) {
    return false;
  } else if (forward) {
    source.images.output_row_step = w.sh;
  }
  source.group_bytes = source.channels * source.images.channel_bytes;
  return true;
}

const LaneRead* MakeReads(Machine& machine, const DspOp& op, Pass pass, const ConvSource& source,
                          uint32_t channel_bytes) {
  auto* reads = machine.scratch.Take<LaneRead>(source.taps * source.channels + kSpareReads);
  if (reads == nullptr) return nullptr;
  LaneRead* at = reads;
  for (int i = 0; i < op.window.kh; ++i) {
    for (int j = 0; j < op.window.kw; ++j) {
      LaneRead read = ReadOf(source, op, pass, i, j);
      for (int c = 0; c < source.channels; ++c, read.offset += channel_bytes) *at++ = read;
    }
  }
  for (int i = 0; i < kSpareReads; ++i) *at++ = {0, 0};
  return reads;
}

}  // namespace runnel::hexagon
