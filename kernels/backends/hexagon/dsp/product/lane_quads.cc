#include "kernels/backends/hexagon/dsp/product/lane_quads.h"

#include "kernels/backends/hexagon/dsp/product/product.h"
#include "kernels/backends/hexagon/dsp/shuffles.h"

namespace runnel::hexagon {
namespace {

// Images of longer rows are rather read where they are.
constexpr int kMaxReach = 96;
constexpr int kChannelsAtOnce = 32;

int WholeVectors(int words) { return (words + kVectorWords - 1) / kVectorWords * kVectorWords; }

// Four rows of `count` bytes as words, in whole vectors.
void FillQuad(const uint8_t* rows, int stride, int count, int32_t* to) {
  const Vector sign = SplatBytes(128);
  for (int left = count; left > 0; left -= kTileLanes, rows += kVectorBytes, to += kTileLanes) {
    Vector v[4];
    for (int j = 0; j < 4; ++j) {
      v[j] = Q6_V_vxor_VV(*reinterpret_cast<const Vector*>(rows + j * stride), sign);
    }
    MixUnits<1, 4>(v);
    Store(to, v[0]);
    if (left > kVectorWords) Store(to + kVectorWords, v[1]);
    if (left <= 2 * kVectorWords) continue;
    Store(to + 2 * kVectorWords, v[2]);
    Store(to + 3 * kVectorWords, v[3]);
  }
}

}  // namespace

bool LaneQuads::Fits(const ConvSource& source) {
  return source.in_place && source.channels % 4 == 0 && source.before <= kMaxReach &&
         source.behind <= kMaxReach;
}

bool LaneQuads::Begin(Machine& machine, const ConvSource& source) {
  source_ = &source;
  quads_ = source.channels / 4;
  lead_ = WholeVectors(source.before);
  stride_ = lead_ + kTileLanes + WholeVectors(source.behind) + 2 * kVectorWords;
  row_stride_ = (3 * kVectorBytes + source.before + source.behind) / kVectorBytes * kVectorBytes;
  words_ = machine.scratch.Take<int32_t>(quads_ * stride_);
  rows_ = machine.scratch.Take(kChannelsAtOnce * row_stride_);
  return words_ != nullptr && rows_ != nullptr;
}

void LaneQuads::Fill(int group, uint32_t first, int lanes) {
  const DspImages& size = source_->size;
  const uint32_t plane = size.h * size.w;
  // Masks take out what lies in other samples.
  const uint32_t sample = first / plane * plane;
  const uint32_t end_sample = (first + lanes - 1) / plane * plane + plane;
  const uint32_t begin = first - Min<uint32_t>(source_->before, first - sample);
  const uint32_t end = Min<uint32_t>(first + lanes + source_->behind, end_sample);
  const int count = static_cast<int>(end - begin);
  int32_t* to = words_ + lead_ - (first - begin);
  const uint8_t* images = source_->images.data + group * source_->group_bytes;
  for (int c = 0; c < source_->channels; c += kChannelsAtOnce, images += kChannelsAtOnce * plane) {
    const int channels = Min(kChannelsAtOnce, source_->channels - c);
    GatherRows(images, size, channels, begin, count, rows_, row_stride_);
    const uint8_t* rows = rows_;
    for (int i = 0; i < channels; i += 4, rows += 4 * row_stride_, to += stride_) {
      FillQuad(rows, row_stride_, count, to);
    }
  }
}

// `kept`: of a tap's lanes, 32 in each. Copies the words of `count` quads that begin at `from`.
template <int kVectors>
RUNNEL_INLINE void CopyQuads(const int32_t* from, int stride, int count, const Words& kept,
                             Vector* __restrict b) {
  const Vector zero = Q6_V_vzero(), nothing = SplatBytes(128);
  Predicate keeps[kVectors];
  for (int n = 0; n < kVectors; ++n) keeps[n] = Q6_Q_vcmp_gt_VwVw(zero, kept.v[n]);
  // Aligned loads, which leave the packet more room than others; the stride is whole vectors.
  const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(from));
  const auto* __restrict words = reinterpret_cast<const Vector*>(reinterpret_cast<uintptr_t>(from) /
                                                                 kVectorBytes * kVectorBytes);
  for (int i = 0; i < count; ++i, words += stride / kVectorWords, b += kVectors) {
    Vector v[kVectors + 1];
    for (int n = 0; n <= kVectors; ++n) v[n] = words[n];
    for (int n = 0; n < kVectors; ++n) {
      b[n] = Q6_V_vmux_QVV(keeps[n], Q6_V_valign_VVR(v[n + 1], v[n], shift), nothing);
    }
  }
}

template <int kVectors>
void LaneQuads::PackTaps(int step, int count, const Vector* masks, Vector* b) const {
  const EdgeMasks& edges = source_->edges;
  int tap = step / quads_, quad = step - tap * quads_;
  int row = tap / edges.columns, column = tap - row * edges.columns;
  for (int left = count; left > 0; ++tap, quad = 0) {
    const int part = Min(left, quads_ - quad);
    CopyQuads<kVectors>(words_ + quad * stride_ + lead_ + source_->OffsetOf(row, column), stride_,
                        part, WordsOfBytes(masks[ConvSource::MaskOf(tap)]), b);
    left -= part;
    b += part * kVectors;
    if (++column < edges.columns) continue;
    column = 0;
    ++row;
  }
}

void LaneQuads::Pack(int step, int count, int lanes, const Vector* masks, Vector* b) const {
  switch (TileVectors(lanes)) {
    case 4:
      return PackTaps<4>(step, count, masks, b);
    case 2:
      return PackTaps<2>(step, count, masks, b);
    default:
      return PackTaps<1>(step, count, masks, b);
  }
}

}  // namespace runnel::hexagon
