#include "kernels/hexagon/dsp/images.h"

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
