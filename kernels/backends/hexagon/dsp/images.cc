#include "kernels/backends/hexagon/dsp/images.h"

#include "kernels/backends/hexagon/dsp/shuffles.h"

namespace runnel::hexagon {
namespace {

void PlaceRow(const uint8_t* from, int width, const ImageLayout& layout, int phase_columns,
              uint8_t* row) {
  if (layout.column_step == 1 && layout.phases == 1) {
    // Whole vectors: what they overwrite behind the row is either still the fill or comes later.
    const Vector fill = SplatBytes(layout.fill);
    const int count = Min(width, layout.columns - layout.left);
    for (int j = 0; j < count; j += kVectorBytes) {
      const Vector value = Load(from + j);
      Store(row + layout.left + j, count - j >= kVectorBytes
                                       ? value
                                       : Q6_V_vmux_QVV(Q6_Q_vsetq_R(count - j), value, fill));
    }
    return;
  }
  for (int j = 0; j < width; ++j) {
    const int column = layout.left + j * layout.column_step;
    if (column >= layout.columns) return;
    row[column % layout.phases * phase_columns + column / layout.phases] = from[j];
  }
}

void FillMasks(const EdgeMasks& edges, const DspImages& grid, uint32_t first, Vector* masks) {
  alignas(kVectorBytes) int8_t rows[kVectorBytes];
  alignas(kVectorBytes) int8_t columns[kVectorBytes];
  const uint32_t at = first % (grid.h * grid.w);
  int row = static_cast<int>(at) / grid.w, column = static_cast<int>(at) % grid.w;
  for (int lane = 0; lane < kVectorBytes; ++lane) {
    rows[lane] = static_cast<int8_t>(row);
    columns[lane] = static_cast<int8_t>(column);
    if (++column < grid.w) continue;
    column = 0;
    if (++row == grid.h) row = 0;
  }
  const Vector before = SplatBytes(-1), height = SplatBytes(grid.h), width = SplatBytes(grid.w);
  const Vector all = SplatBytes(-1);
  *masks++ = all;
  for (int i = 0; i < edges.rows; ++i) {
    const Vector r = Q6_Vb_vadd_VbVb(*reinterpret_cast<const Vector*>(rows),
                                     SplatBytes(edges.top + i * edges.step));
    const Predicate row_inside =
        Q6_Q_and_QQ(Q6_Q_vcmp_gt_VbVb(r, before), Q6_Q_vcmp_gt_VbVb(height, r));
    for (int j = 0; j < edges.columns; ++j) {
      const Vector c = Q6_Vb_vadd_VbVb(*reinterpret_cast<const Vector*>(columns),
                                       SplatBytes(edges.left + j * edges.step));
      const Predicate column_inside =
          Q6_Q_and_QQ(Q6_Q_vcmp_gt_VbVb(c, before), Q6_Q_vcmp_gt_VbVb(width, c));
      *masks++ = Q6_V_vmux_QVV(Q6_Q_and_QQ(row_inside, column_inside), all, Q6_V_vzero());
    }
  }
}

// A vector of each row.
void CopyColumn(const uint8_t* from, int from_stride, int rows, uint8_t* __restrict to,
                int to_stride) {
  for (int i = 0; i < rows; ++i, from += from_stride, to += to_stride) Store(to, Load(from));
}

// Whole images of kPlane bytes, kVectorBytes of them in turn and as many channels at a time.
template <int kPlane>
void GatherImages(const uint8_t* images, uint32_t sample_bytes, int channels, uint8_t* rows,
                  int stride) {
  constexpr int kImages = kVectorBytes / kPlane;
  for (int c = 0; c < channels; c += kImages, images += kVectorBytes) {
    const uint8_t* sample = images;
    Vector mixed[kImages];
    for (int i = 0; i < kImages; ++i, sample += sample_bytes) mixed[i] = Load(sample);
    MixUnits<kPlane, kImages>(mixed);
    for (int i = 0; i < kImages; ++i, rows += stride) Store(rows, mixed[i]);
  }
}

void GatherSmallImages(const uint8_t* images, uint32_t sample_bytes, int channels, uint8_t* rows,
                       int stride) {
  for (int c = 0; c < channels; c += kVectorWords, images += kVectorBytes) {
    TransposeWords(
        [&](int group, Vector* samples) {
          const uint8_t* sample = images + 8 * group * sample_bytes;
          for (int i = 0; i < 8; ++i, sample += sample_bytes) samples[i] = Load(sample);
        },
        [&](int i, Vector row) { Store(rows + (c + i) * stride, row); });
  }
}

// 128 positions from a sample's first on; false: not in this way.
bool GatherWhole(const uint8_t* images, int plane, uint32_t sample_bytes, int channels,
                 uint8_t* rows, int stride) {
  if (plane == 64 && channels % 2 == 0) {
    GatherImages<64>(images, sample_bytes, channels, rows, stride);
  } else if (plane == 16 && channels % 8 == 0) {
    GatherImages<16>(images, sample_bytes, channels, rows, stride);
  } else if (plane == 4 && channels % kVectorWords == 0) {
    GatherSmallImages(images, sample_bytes, channels, rows, stride);
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool LayOut(Machine& machine, const uint8_t* images, const DspImages& size,
            const ImageLayout& layout, LaidOutImages& result) {
  result.phases = layout.phases;
  result.phase_columns = (layout.columns + layout.phases - 1) / layout.phases;
  result.row_bytes = result.phases * result.phase_columns;
  result.channel_bytes = result.row_bytes * layout.rows;
  result.sample_bytes = result.channel_bytes * size.c;
  const uint64_t bytes = uint64_t{result.sample_bytes} * size.n;
  uint8_t* data = machine.scratch.Take(bytes);
  if (data == nullptr) return false;
  memset(data, layout.fill, bytes);
  for (int plane = 0; plane < size.n * size.c; ++plane) {
    uint8_t* to = data + plane * result.channel_bytes;
    for (int i = 0; i < size.h; ++i) {
      const int row = layout.top + i * layout.row_step;
      if (row >= layout.rows) break;
      PlaceRow(images + (plane * size.h + i) * size.w, size.w, layout, result.phase_columns,
               to + row * result.row_bytes);
    }
  }
  result.data = data;
  return true;
}

LaidOutImages InPlace(const uint8_t* images, const DspImages& size) {
  LaidOutImages result;
  result.data = images;
  result.row_bytes = size.w;
  result.phase_columns = size.w;
  result.channel_bytes = size.h * size.w;
  result.sample_bytes = result.channel_bytes * size.c;
  return result;
}

bool TileMasks::Begin(Machine& machine, const EdgeMasks& edges, const DspImages& grid) {
  edges_ = edges;
  grid_ = grid;
  plane_ = grid.h * grid.w;
  keeps_ = kVectorBytes % plane_ == 0 ||
           (plane_ % kVectorBytes == 0 && plane_ / kVectorBytes <= kMostKept);
  masks_ = machine.scratch.Take<Vector>(keeps_ ? kMostKept * kMaxMasks : kMaxMasks);
  return masks_ != nullptr;
}

const Vector* TileMasks::At(uint32_t first) {
  const uint32_t kept = keeps_ ? first % plane_ / kVectorBytes : 0;
  Vector* masks = masks_ + kept * kMaxMasks;
  if (!keeps_ || !filled_[kept]) FillMasks(edges_, grid_, first, masks);
  filled_[kept] = true;
  return masks;
}

void GatherRows(const uint8_t* images, const DspImages& size, int channels, uint32_t begin,
                int count, uint8_t* rows, int stride) {
  const int plane = size.h * size.w;
  const uint32_t sample_bytes = size.c * plane;
  uint32_t sample = begin / plane;
  int at = static_cast<int>(begin % plane);
  for (int done = 0; done < count;) {
    const uint8_t* from = images + sample * sample_bytes + at;
    if (at == 0 && count - done >= kVectorBytes &&
        GatherWhole(from, plane, sample_bytes, channels, rows + done, stride)) {
      done += kVectorBytes;
      sample += kVectorBytes / plane;
      continue;
    }
    const int part = Min(plane - at, count - done);
    for (int i = 0; i < part; i += kVectorBytes) {
      CopyColumn(from + i, plane, channels, rows + done + i, stride);
    }
    done += part;
    at = 0;
    ++sample;
  }
}

int SegmentsOf(const LaidOutImages& images, const DspImages& grid, uint32_t first, int count,
               Segment* segments) {
  const uint32_t plane = grid.h * grid.w;
  int n = static_cast<int>(first / plane);
  int row = static_cast<int>(first % plane) / grid.w;
  int column = static_cast<int>(first % plane) % grid.w;
  int used = 0;
  for (int lane = 0; lane < count;) {
    const int length = Min(grid.w - column, count - lane);
    const uint32_t source =
        n * images.sample_bytes + row * images.output_row_step * images.row_bytes + column;
    Segment* last = used > 0 ? &segments[used - 1] : nullptr;
    if (last != nullptr && last->source + last->count == source) {
      last->count += length;
    } else {
      segments[used++] = {source, lane, length};
    }
    lane += length;
    column = 0;
    if (++row == grid.h) {
      row = 0;
      ++n;
    }
  }
  return used;
}

}  // namespace runnel::hexagon
