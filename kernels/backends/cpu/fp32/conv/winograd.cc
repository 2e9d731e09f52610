#include "kernels/backends/cpu/fp32/conv/winograd.h"

#include <algorithm>
#include <vector>

#include "kernels/backends/cpu/fp32/packing.h"
#include "kernels/backends/cpu/kept_weights.h"

namespace runnel::fp32 {
namespace {

constexpr int64_t kPoints = 16;
constexpr int64_t kTaps = 9;
constexpr int64_t kFilterChunk = 16;  // input channels that are turned at once
// Of a block of tiles, transformed, and its products with one panel: they stay in the second-level
// cache.
constexpr int64_t kTileFloats = 460000;
// Of transformed filters that are not kept: the panels of more are computed one group after the
// other, each of which transforms the tiles again. 512 channels need it, 256 do not.
constexpr int64_t kFilterFloats = 1 << 20;

// u = G g G^T of `lanes` filters side by side: tap k at g + k * lanes, point p to u + p * u_step.
void TransformFilters(const float* g, int64_t lanes, float* u, int64_t u_step) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    float t[4][3];
    for (int j = 0; j < 3; ++j) {
      const float a = g[j * lanes + lane], b = g[(3 + j) * lanes + lane],
                  c = g[(6 + j) * lanes + lane];
      t[0][j] = a;
      t[1][j] = 0.5f * (a + c + b);
      t[2][j] = 0.5f * (a + c - b);
      t[3][j] = c;
    }
    for (int i = 0; i < 4; ++i) {
      float* row = u + 4 * i * u_step + lane;
      row[0] = t[i][0];
      row[u_step] = 0.5f * (t[i][0] + t[i][2] + t[i][1]);
      row[2 * u_step] = 0.5f * (t[i][0] + t[i][2] - t[i][1]);
      row[3 * u_step] = t[i][2];
    }
  }
}

class WinogradRunner {
 public:
  WinogradRunner(const Call& call, const ConvProduct& conv, const float* x)
      : call_(call),
        conv_(conv),
        x_(x),
        ins_(conv.source.c),
        lanes_(call.kernels().tile_vectors * call.kernels().width),
        panels_(MakePanels(call.kernels(), conv.target.c)),
        rows_((conv.target.h + 1) / 2),
        columns_((conv.target.w + 1) / 2) {
    const int64_t most = std::max<int64_t>(1, kTileFloats / (kPoints * (ins_ + lanes_)));
    const int64_t blocks = (tiles() + most - 1) / most;
    block_ = (tiles() + blocks - 1) / blocks;
    zeros_ = call.Take<float>(ins_);
    std::fill_n(zeros_, ins_, 0.0f);
  }

  void Run() {
    for (int i = 0; i < call_.machine.workers(); ++i) buffers_.push_back(MakeBuffers());
    if (KeepFilters()) return RunPanels(0, panels_.size());
    const int64_t width = PackedWidth(call_.kernels(), panels_);
    const int64_t most = std::max(lanes_, kFilterFloats / (kPoints * ins_));
    float* const filters = call_.Take<float>(kPoints * ins_ * std::min(width, most));
    for (size_t begin = 0; begin < panels_.size();) {
      size_t end = begin + 1;
      while (end < panels_.size() && EndOf(end) - panels_[begin].offset <= most) ++end;
      FillPanels(begin, end, filters);
      filters_ = filters;
      filters_offset_ = panels_[begin].offset;
      RunPanels(begin, end);
      begin = end;
    }
  }

 private:
  // One set a worker. Row i of point p: the products of tile i.
  struct Buffers {
    float* tiles;  // (points, block, ins)
    float* sums;   // (points, block, lanes)
    float* taps;   // of a chunk of filters, side by side
    const float** rows;
    float** targets;
  };

  int64_t tiles() const { return conv_.source.n * rows_ * columns_; }

  int64_t EndOf(size_t panel) const {
    return panels_[panel].offset + panels_[panel].vectors * call_.kernels().width;
  }

  Buffers MakeBuffers() const {
    const int64_t count = kPoints * block_;
    const Buffers b = {call_.Take<float>(count * ins_), call_.Take<float>(count * lanes_),
                       call_.Take<float>(kFilterChunk * kTaps * lanes_),
                       call_.Take<const float*>(count), call_.Take<float*>(count)};
    for (int64_t i = 0; i < count; ++i) {
      b.rows[i] = b.tiles + i * ins_;
      b.targets[i] = b.sums + i * lanes_;
    }
    return b;
  }

  // Those of all panels, in memory that stays. Whether there is any.
  bool KeepFilters() {
    if (call_.kept == nullptr) return false;
    const int64_t floats = kPoints * ins_ * PackedWidth(call_.kernels(), panels_);
    filters_ = call_.kept->Of(*call_.inputs[1].buffer, floats,
                              [&](float* to) { FillPanels(0, panels_.size(), to); });
    return filters_ != nullptr;
  }

  // Panel by panel, point by point, input channels by output channels.
  void FillPanels(size_t first, size_t last, float* to) const {
    const int64_t chunks = (ins_ + kFilterChunk - 1) / kFilterChunk;
    ParallelFor(call_.machine, static_cast<int64_t>(last - first) * chunks,
                [&](int worker, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const Panel& panel = panels_[first + static_cast<size_t>(i / chunks)];
                    FillChunk(panel, i % chunks * kFilterChunk, buffers_[worker].taps,
                              to + kPoints * ins_ * (panel.offset - panels_[first].offset));
                  }
                });
  }

  void FillChunk(const Panel& panel, int64_t c, float* taps, float* to) const {
    const int64_t width = panel.vectors * call_.kernels().width, row = ins_ * kTaps;
    const int64_t count = std::min(kFilterChunk, ins_ - c);
    call_.kernels().transpose(conv_.weight + panel.begin * row + c * kTaps, panel.columns,
                              count * kTaps, row, taps, width);
    for (int64_t i = 0; i < count; ++i)
      TransformFilters(taps + i * kTaps * width, width, to + (c + i) * width, ins_ * width);
  }

  void RunPanels(size_t first, size_t last) const {
    ParallelFor(call_.machine, (tiles() + block_ - 1) / block_,
                [&](int worker, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i)
                    RunBlock(i * block_, first, last, buffers_[worker]);
                });
  }

  // Pixels of a tile, 4 x 4, and its outputs, 2 x 2, null beyond the target.
  void PointAt(int64_t tile, const float* (&d)[kPoints], float* (&y)[4]) const {
    const int64_t n = tile / (rows_ * columns_), at = tile % (rows_ * columns_);
    const int64_t row = at / columns_ * 2, column = at % columns_ * 2;
    const int64_t top = row + conv_.h.passes[0].source_begin;
    const int64_t left = column + conv_.w.passes[0].source_begin;
    const Image &from = conv_.source, &to = conv_.target;
    for (int64_t p = 0; p < kPoints; ++p) {
      const int64_t h = top + p / 4, w = left + p % 4;
      const bool is_inside = h >= 0 && h < from.h && w >= 0 && w < from.w;
      d[p] = is_inside ? x_ + ((n * from.h + h) * from.w + w) * ins_ : zeros_;
    }
    for (int64_t k = 0; k < 4; ++k) {
      const int64_t h = row + k / 2, w = column + k % 2;
      const bool is_there = h < to.h && w < to.w;
      y[k] = is_there ? conv_.y + ((n * to.h + h) * to.w + w) * to.c : nullptr;
    }
  }

  void RunBlock(int64_t first, size_t first_panel, size_t last_panel, const Buffers& b) const {
    const int64_t count = std::min(block_, tiles() - first);
    const float* d[kPoints];
    float* y[4];
    for (int64_t i = 0; i < count; ++i) {
      PointAt(first + i, d, y);
      call_.kernels().winograd_input(d, ins_, b.tiles + i * ins_, block_ * ins_);
    }
    for (size_t p = first_panel; p < last_panel; ++p) {
      const Panel& panel = panels_[p];
      Multiply(panel, count, b);
      WinogradTile tile = {.m_step = block_ * lanes_,
                           .columns = panel.columns,
                           .bias = conv_.bias == nullptr ? nullptr : conv_.bias + panel.begin,
                           .y = y,
                           .finish = conv_.finish,
                           .finish_column = panel.begin};
      for (int64_t i = 0; i < count; ++i) {
        PointAt(first + i, d, y);
        for (float*& to : y) to = to == nullptr ? nullptr : to + panel.begin;
        tile.m = b.sums + i * lanes_;
        call_.kernels().winograd_output(tile);
      }
    }
  }

  void Multiply(const Panel& panel, int64_t count, const Buffers& b) const {
    const Segment whole = {.length = ins_};
    const Panel alone = {.columns = panel.columns, .vectors = panel.vectors};
    const int64_t width = panel.vectors * call_.kernels().width;
    for (int64_t p = 0; p < kPoints; ++p) {
      const ProductRows rows = {b.rows + p * block_, b.targets + p * block_, count, &whole, 1};
      Product product;
      product.groups = &rows;
      product.group_count = 1;
      product.depth = ins_;
      product.b = filters_ + (kPoints * (panel.offset - filters_offset_) + p * width) * ins_;
      product.panels = &alone;
      product.panel_count = 1;
      call_.kernels().product(product);
    }
  }

  const Call& call_;
  const ConvProduct& conv_;
  const float* const x_;
  const int64_t ins_;
  const int64_t lanes_;  // of the widest panel
  const std::vector<Panel> panels_;
  const int64_t rows_, columns_;  // tiles of an image
  int64_t block_ = 1;             // tiles
  float* zeros_ = nullptr;
  const float* filters_ = nullptr;  // of a group of panels
  int64_t filters_offset_ = 0;      // its first panel's
  std::vector<Buffers> buffers_;
};

}  // namespace

void RunWinograd(const Call& call, const ConvProduct& conv, const float* x) {
  WinogradRunner(call, conv, x).Run();
}

}  // namespace runnel::fp32
