#include "kernels/hexagon/dsp/images.h"

namespace runnel::hexagon {
namespace {

void PlaceRow(const uint8_t* from, int width, const ImageLayout& layout, int phase_columns,
              uint8_t* row) {
  if (layout.column_step == 1 && layout.phases == 1) {
    const int count = Min(width, layout.columns - layout.left);
    for (int j = 0; j < count; j += kVectorBytes) {
      StoreBytes(row + layout.left + j, Load(from + j), count - j);
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
