#pragma once

// One thread's part of a gathering convolution (gather_conv.h): copies the source where it has to,
// then for each panel of weights adds the tiles of rows of one class and turns sums into codes.

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernels/backends/cpu/int8/gather_layout.h"
#include "kernels/backends/cpu/int8/gather_panels.h"

namespace runnel::cpu {

// Tiles that fetch a panel between them (Int8Tile::ahead).
inline constexpr int kAheadTiles = 4;
// Tiles of a 1x1 convolution that go through all panels together.
inline constexpr int kFlatTiles = 16;

// The rows and the columns of the outputs: every thread reads them.
struct GatherAxes {
  Axis h, w;
};

// One thread's part of the work.
class GatherPart {
 public:
  GatherPart(const GatherSizes& sizes, const GatherAxes& axes, const GatherOperands& operands,
             const GatherThread& memory)
      : sizes_(sizes),
        problem_(sizes.problem),
        kernels_(sizes.kernels),
        axes_(axes),
        operands_(operands),
        memory_(memory) {}

  // Images [begin, end), panels [first_panel, last_panel).
  void Run(int64_t begin, int64_t end, int64_t first_panel, int64_t last_panel,
           const int8_t* all_panels) {
    for (image_begin_ = begin; image_begin_ < end; image_begin_ = image_end_) {
      image_end_ = std::min(end, image_begin_ + sizes_.chunk_images);
      CopySource();
      if (sizes_.flat && all_panels != nullptr && sizes_.small_panels) {
        RunFlat(first_panel, last_panel, all_panels);
        continue;
      }
      for (int64_t p = first_panel; p < last_panel; ++p) {
        if (all_panels == nullptr) PackPanel(sizes_, operands_.weights, p, memory_.panel);
        RunPanel(p, all_panels == nullptr ? memory_.panel : all_panels + p * sizes_.panel_bytes);
      }
    }
  }

 private:
  void CopySource() {
    const int64_t pixels = problem_.source_h * problem_.source_w;
    const int8_t* from = operands_.source + image_begin_ * pixels * problem_.source_pixel;
    if (!sizes_.copies_source) {
      source_ = reinterpret_cast<const uint8_t*>(from);
      source_pixel_ = problem_.source_pixel;
      return;
    }
    source_ = memory_.source;
    source_pixel_ = sizes_.padded_c;
    // Another panel of the same images needs no copy of its own.
    if (std::exchange(*memory_.copied, image_begin_) == image_begin_) return;
    kernels_.copy_a(from, problem_.source_pixel, (image_end_ - image_begin_) * pixels,
                    problem_.source_c, memory_.source, sizes_.padded_c);
  }

  // The segments of a class within steps [begin, end).
  int FillSegments(int class_h, int class_w, int64_t begin, int64_t end) {
    const AxisRun &h = axes_.h.ClassRun(class_h), &w = axes_.w.ClassRun(class_w);
    int count = 0;
    for (int64_t i = 0; i < h.count && w.count > 0; ++i) {
      const int64_t first = ((h.slot + i) * problem_.w.kernel + w.slot) * sizes_.tap_steps;
      const int64_t low = std::max(first, begin);
      const int64_t high = std::min(first + w.count * sizes_.tap_steps, end);
      if (low >= high) continue;
      memory_.segments[count++] = {
          i * problem_.source_w * source_pixel_ + (low - first) * kernels_.k_group,
          low * kernels_.k_group * width_, high - low};
    }
    return count;
  }

  // Some rows with all panels at a time: results leave in whole rows, while the lines and pages
  // that they lie in are at hand.
  void RunFlat(int64_t first_panel, int64_t last_panel, const int8_t* all_panels) {
    const int64_t rows = (image_end_ - image_begin_) * problem_.out_h * problem_.out_w;
    const int64_t some = int64_t{kFlatTiles} * kernels_.tile_rows;
    for (int64_t row = 0; row < rows; row += some) {
      for (int64_t p = first_panel; p < last_panel; ++p) {
        BeginPanel(p, all_panels + p * sizes_.panel_bytes);
        AddFlat(row, std::min(rows, row + some));
        FinishChunk();
      }
    }
  }

  void BeginPanel(int64_t p, const int8_t* panel) {
    panel_ = panel;
    // Where all are packed.
    const bool is_last = p + 1 == sizes_.panels;
    next_ = is_last ? reinterpret_cast<const int8_t*>(operands_.next) : panel + sizes_.panel_bytes;
    if (operands_.packed == nullptr) next_ = nullptr;
    fetched_ = 0;
    columns_ = static_cast<int>(sizes_.Columns(p));
    width_ = static_cast<int>(sizes_.Width(p));
    first_column_ = p * kernels_.panel_columns;
    if (operands_.coding != nullptr) {
      coding_ = operands_.coding->tile;
      coding_.scales += first_column_;
    }
    if (has_starts()) FillStarts();
  }

  void RunPanel(int64_t p, const int8_t* panel) {
    BeginPanel(p, panel);
    if (sizes_.flat) {
      AddFlat(0, (image_end_ - image_begin_) * problem_.out_h * problem_.out_w);
    } else {
      for (int ch = 0; ch < axes_.h.class_count; ++ch) {
        for (int cw = 0; cw < axes_.w.class_count; ++cw) AddClass(ch, cw);
      }
    }
    FinishChunk();
  }

  bool has_starts() const { return kernels_.a_bias != 0 || operands_.coding != nullptr; }

  // Start of each class: the sum over its slots, with the coding's offsets.
  void FillStarts() {
    const auto* slots = reinterpret_cast<const int32_t*>(panel_ + sizes_.starts_offset);
    for (int ch = 0; ch < axes_.h.class_count; ++ch) {
      for (int cw = 0; cw < axes_.w.class_count; ++cw) {
        const AxisRun &h = axes_.h.ClassRun(ch), &w = axes_.w.ClassRun(cw);
        int32_t* start = StartOf(ch, cw);
        if (operands_.coding != nullptr) {
          std::copy_n(operands_.coding->offsets + first_column_, width_, start);
        } else {
          std::fill_n(start, width_, 0);
        }
        for (int64_t i = 0; i < int64_t{h.count} * w.count; ++i) {
          const int64_t slot = (h.slot + i / w.count) * problem_.w.kernel + w.slot + i % w.count;
          for (int j = 0; j < width_; ++j) start[j] += slots[slot * width_ + j];
        }
      }
    }
  }

  int32_t* StartOf(int class_h, int class_w) const {
    return memory_.starts + (class_h * axes_.w.class_count + class_w) * kMaxPanelColumns;
  }

  // Adds the outputs of a class, which begins with a tile of its own.
  void AddClass(int class_h, int class_w) {
    const Axis &h = axes_.h, &w = axes_.w;
    class_h_ = class_h;
    class_w_ = class_w;
    const int first = w.class_begin[class_w], end = w.class_begin[class_w + 1];
    for (int64_t n = image_begin_; n < image_end_; ++n) {
      for (int i = h.class_begin[class_h]; i < h.class_begin[class_h + 1]; ++i) {
        const int64_t y = h.order[i];
        const int64_t source_row = (n - image_begin_) * problem_.source_h + h.runs[y].source;
        AddRows(source_ + source_row * problem_.source_w * source_pixel_, w.source_offset + first,
                first_column_ + (n * problem_.out_h + y) * problem_.out_w * problem_.out_pixel,
                w.out_offset + first, end - first);
      }
    }
    FinishClass();
  }

  // Outputs [begin, end) of the images. Every one reads the pixel at its own place: no need to go
  // image by image.
  void AddFlat(int64_t begin, int64_t end) {
    class_h_ = class_w_ = 0;
    const int64_t first = image_begin_ * problem_.out_h * problem_.out_w + begin;
    const uint8_t* source = source_ + begin * source_pixel_;
    int64_t place = first_column_ + first * problem_.out_pixel;
    for (int64_t left = end - begin; left > 0;) {
      const int64_t count = std::min(left, Capacity() - row_count_);
      for (int64_t i = 0; i < count; ++i) {
        memory_.a[row_count_ + i] = source + i * source_pixel_;
        memory_.place[row_count_ + i] = place + i * problem_.out_pixel;
      }
      source += count * source_pixel_;
      place += count * problem_.out_pixel;
      row_count_ += count;
      left -= count;
      if (row_count_ == Capacity()) FinishClass();
    }
    FinishClass();
  }

  int64_t Capacity() const { return int64_t{kChunkTiles} * kernels_.tile_rows; }

  void AddRows(const uint8_t* source, const int64_t* source_offsets, int64_t place,
               const int64_t* out_offsets, int64_t count) {
    while (count > 0) {
      const int64_t now = std::min(count, Capacity() - row_count_);
      const uint8_t** a = memory_.a + row_count_;
      int64_t* places = memory_.place + row_count_;
      for (int64_t i = 0; i < now; ++i) {
        a[i] = source + source_offsets[i] * source_pixel_;
        places[i] = place + out_offsets[i];
      }
      row_count_ += now;
      source_offsets += now;
      out_offsets += now;
      count -= now;
      if (row_count_ == Capacity()) FinishClass();
    }
  }

  // Cuts the rows since the last call into tiles of the present class.
  void FinishClass() {
    const int tile_rows = kernels_.tile_rows;
    for (int64_t row = int64_t{tile_count_} * tile_rows; row < row_count_; row += tile_rows) {
      const auto rows = static_cast<int32_t>(std::min<int64_t>(tile_rows, row_count_ - row));
      memory_.tiles[tile_count_++] = {class_h_, class_w_, rows};
    }
    row_count_ = int64_t{tile_count_} * tile_rows;
    if (tile_count_ == kChunkTiles) FinishChunk();
  }

  void FinishChunk() {
    for (int64_t begin = 0; begin < sizes_.steps; begin += sizes_.block_steps) {
      RunBlock(begin, std::min(sizes_.steps, begin + sizes_.block_steps));
    }
    tile_count_ = 0;
    row_count_ = 0;
  }

  // Whether steps [begin, end) are the first and the last block of a class.
  struct Place {
    bool first, last;
  };
  Place PlaceOf(int class_h, int class_w, int64_t begin, int64_t end) const {
    const AxisRun &h = axes_.h.ClassRun(class_h), &w = axes_.w.ClassRun(class_w);
    if (h.count == 0 || w.count == 0) return {begin == 0, begin == 0};
    const int64_t kernel_w = problem_.w.kernel;
    const int64_t low = (h.slot * kernel_w + w.slot) * sizes_.tap_steps;
    const int64_t high = ((h.slot + h.count - 1) * kernel_w + w.slot + w.count) * sizes_.tap_steps;
    return {begin <= low && low < end, begin < high && high <= end};
  }

  // What a full tile of the block fetches: a quarter of the same block of the next panel.
  const int8_t* TakeAhead(int64_t begin, int64_t end) {
    const int64_t block = (end - begin) * kernels_.k_group * width_;
    const int64_t part = fetched_++;
    if (next_ == nullptr || part >= kAheadTiles) return nullptr;
    return next_ + begin * kernels_.k_group * width_ + part * (block / kAheadTiles);
  }

  void RunBlock(int64_t begin, int64_t end) {
    Int8Tile tile{.a_step = kernels_.k_group,
                  .a_is_raw = kernels_.a_bias != 0 && !sizes_.copies_source,
                  .b = panel_,
                  .segments = memory_.segments,
                  .columns = columns_};
    int class_h = -1, class_w = -1;
    Place place{};
    for (int t = 0; t < tile_count_; ++t) {
      const GatherTile& plan = memory_.tiles[t];
      if (plan.class_h != class_h || plan.class_w != class_w) {
        class_h = plan.class_h;
        class_w = plan.class_w;
        tile.segment_count = FillSegments(class_h, class_w, begin, end);
        place = PlaceOf(class_h, class_w, begin, end);
        tile.start = place.first && has_starts() ? StartOf(class_h, class_w) : nullptr;
      }
      if (tile.segment_count == 0 && !place.first) continue;
      const int64_t row = int64_t{t} * kernels_.tile_rows;
      tile.a = memory_.a + row;
      tile.rows = plan.rows;
      tile.ahead = plan.rows == kernels_.tile_rows ? TakeAhead(begin, end) : nullptr;
      tile.addend = place.first ? nullptr : memory_.partials + row;
      if (!place.last) {
        tile.c = memory_.partials + row;
        tile.max_lanes = nullptr;
        kernels_.tile(tile);
      } else if (operands_.rescale != nullptr) {
        RescaleTile(tile, memory_.place + row);
      } else if (operands_.coding != nullptr) {
        CodeTile(tile, memory_.place + row);
      } else if (operands_.sink != nullptr) {
        GiveTile(tile, memory_.place + row);
      } else {
        StoreTile(tile, memory_.place + row);
      }
    }
  }

  void StoreTile(Int8Tile& tile, const int64_t* places) {
    int32_t* c[kMaxTileRows];
    for (int r = 0; r < tile.rows; ++r) c[r] = operands_.out + places[r];
    tile.c = c;
    tile.max_lanes = operands_.max_lanes != nullptr ? memory_.max_lanes : nullptr;
    kernels_.tile(tile);
  }

  void GiveTile(Int8Tile& tile, const int64_t* places) {
    tile.c = memory_.sum_rows;
    tile.max_lanes = nullptr;
    kernels_.tile(tile);
    operands_.sink->Take({memory_.sum_rows, places, tile.rows, first_column_, columns_});
  }

  void CodeTile(Int8Tile& tile, const int64_t* places) {
    const GatherCoding& coding = *operands_.coding;
    int8_t* y[kMaxTileRows];
    const int8_t* other[kMaxTileRows];
    for (int r = 0; r < tile.rows; ++r) y[r] = coding.codes + places[r];
    for (int r = 0; r < tile.rows && coding_.adds; ++r) {
      other[r] = coding.other + places[r];
      __builtin_prefetch(other[r]);
    }
    tile.y = y;
    tile.other = other;
    tile.coding = &coding_;
    kernels_.tile(tile);
    tile.coding = nullptr;
  }

  void RescaleTile(Int8Tile& tile, const int64_t* places) {
    const Int8Rescale& rescale = *operands_.rescale;
    int8_t* y[kMaxTileRows];
    const int8_t* mask[kMaxTileRows];
    for (int r = 0; r < tile.rows; ++r) {
      y[r] = operands_.rescaled + places[r];
      mask[r] = rescale.mask == nullptr ? nullptr : rescale.mask + places[r];
    }
    if (!kernels_.rounds_tiles) return RoundTile(tile, y, mask);
    tile.rounding = &rescale.rounding;
    tile.y = y;
    tile.mask = rescale.mask == nullptr ? nullptr : mask;
    tile.max_lanes = memory_.max_lanes;
    tile.saturated = memory_.saturated;
    kernels_.tile(tile);
    tile.rounding = nullptr;
  }

  // Where the kernels do not: the sums pass through the nearest cache.
  void RoundTile(Int8Tile& tile, int8_t* const* y, const int8_t* const* mask) {
    alignas(64) uint32_t lanes[kMaxLanes] = {};
    tile.max_lanes = lanes;
    tile.c = memory_.sum_rows;
    kernels_.tile(tile);
    uint32_t largest = 0;
    for (int i = 0; i < kMaxLanes; ++i) {
      memory_.max_lanes[i] = std::max(memory_.max_lanes[i], lanes[i]);
      largest = std::max(largest, lanes[i]);
    }
    const Int8TileRounding& rounding = operands_.rescale->rounding;
    const uint32_t most = uint32_t{128} << rounding.shift;
    if (largest > most) *memory_.saturated += CountAbove(tile, most);
    const auto round =
        rounding.half_away ? kernels_.rescale_half_away : kernels_.rescale_pseudo_stochastic;
    for (int r = 0; r < tile.rows; ++r)
      round(tile.c[r], columns_, rounding.shift, rounding.relu, mask[r], y[r]);
  }

  int64_t CountAbove(const Int8Tile& tile, uint32_t most) const {
    int64_t count = 0;
    for (int r = 0; r < tile.rows; ++r) {
      for (int j = 0; j < columns_; ++j) count += std::abs(int64_t{tile.c[r][j]}) > most ? 1 : 0;
    }
    return count;
  }

  const GatherSizes& sizes_;
  const GatherProblem& problem_;
  const Int8Kernels& kernels_;
  const GatherAxes& axes_;
  const GatherOperands& operands_;
  const GatherThread& memory_;
  const uint8_t* source_ = nullptr;
  int64_t source_pixel_ = 0;
  int64_t image_begin_ = 0, image_end_ = 0;
  const int8_t* panel_ = nullptr;
  int64_t first_column_ = 0;      // of the panel, in the result
  const int8_t* next_ = nullptr;  // the panel after it, or null
  int fetched_ = 0;               // tiles that have fetched a part of it
  int columns_ = 0, width_ = 0;
  Int8TileCoding coding_;              // of the panel
  int32_t class_h_ = 0, class_w_ = 0;  // of the rows that are being added
  int tile_count_ = 0;
  int64_t row_count_ = 0;  // with the empty rows of tiles that a class did not fill
};

}  // namespace runnel::cpu
