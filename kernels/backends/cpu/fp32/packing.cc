#include "kernels/backends/cpu/fp32/packing.h"

#include <algorithm>

namespace runnel::fp32 {
namespace {

constexpr int64_t kChunk = 16;  // input channels that are turned at once

void ClearTail(const Panel& panel, int64_t width, int64_t depth, float* packed) {
  if (panel.columns == width) return;
  for (int64_t k = 0; k < depth; ++k) {
    std::fill(packed + k * width + panel.columns, packed + (k + 1) * width, 0.0f);
  }
}

}  // namespace

std::vector<Panel> MakePanels(const Kernels& kernels, int64_t columns) {
  const int64_t vectors = (columns + kernels.width - 1) / kernels.width;
  const int64_t count = (vectors + kernels.tile_vectors - 1) / kernels.tile_vectors;
  std::vector<Panel> panels(static_cast<size_t>(count));
  int64_t done = 0;
  for (int64_t i = 0; i < count; ++i) {
    Panel& panel = panels[i];
    panel.vectors = static_cast<int>(vectors * (i + 1) / count - vectors * i / count);
    panel.begin = panel.offset = done;
    done += panel.vectors * kernels.width;
    panel.columns = static_cast<int>(std::min(columns, done) - panel.begin);
  }
  return panels;
}

int64_t PackedWidth(const Kernels& kernels, const std::vector<Panel>& panels) {
  return panels.back().offset + panels.back().vectors * kernels.width;
}

std::vector<PanelRun> CutPanels(const Kernels& kernels, const std::vector<Panel>& panels,
                                int64_t depth, Packing packing) {
  const int64_t depth_bytes = depth * static_cast<int64_t>(sizeof(float));
  const int64_t most = kMaxPackedBytes / std::max<int64_t>(1, depth_bytes);
  std::vector<PanelRun> runs;
  int64_t width = 0;
  for (Panel panel : panels) {
    const int64_t lanes = panel.vectors * kernels.width;
    if (runs.empty() || (packing == Packing::kByRuns && width + lanes > most)) {
      runs.push_back({.begin = panel.begin});
      width = 0;
    }
    width += lanes;
    PanelRun& run = runs.back();
    panel.begin -= run.begin;
    panel.offset -= run.begin;  // an offset is a begin
    run.columns = panel.begin + panel.columns;
    run.panels.push_back(panel);
  }
  return runs;
}

void PackForward(const Kernels& kernels, const float* weight, int64_t ins, int64_t tap_count,
                 const Taps& taps, const std::vector<Panel>& panels, float* temporary,
                 float* packed) {
  const int64_t row = ins * tap_count;
  const int64_t depth = ins * static_cast<int64_t>(taps.size());
  for (const Panel& panel : panels) {
    const int64_t width = panel.vectors * kernels.width;
    float* to = packed + panel.offset * depth;
    const float* from = weight + panel.begin * row;
    ClearTail(panel, width, depth, to);
    if (tap_count == 1 && taps.size() == 1) {
      kernels.transpose(from, panel.columns, ins, row, to, width);
      continue;
    }
    for (int64_t c = 0; c < ins; c += kChunk) {
      const int64_t count = std::min(kChunk, ins - c);
      kernels.transpose(from + c * tap_count, panel.columns, count * tap_count, row, temporary,
                        width);
      for (size_t t = 0; t < taps.size(); ++t) {
        for (int64_t i = 0; i < count; ++i) {
          std::copy_n(temporary + (i * tap_count + taps[t]) * width, panel.columns,
                      to + (static_cast<int64_t>(t) * ins + c + i) * width);
        }
      }
    }
  }
}

void PackBackward(const Kernels& kernels, const float* weight, int64_t outs, int64_t ins,
                  int64_t tap_count, const Taps& taps, const std::vector<Panel>& panels,
                  float* packed) {
  const int64_t depth = outs * static_cast<int64_t>(taps.size());
  for (const Panel& panel : panels) {
    const int64_t width = panel.vectors * kernels.width;
    float* to = packed + panel.offset * depth;
    ClearTail(panel, width, depth, to);
    for (int64_t o = 0; o < outs; ++o) {
      const float* from = weight + (o * ins + panel.begin) * tap_count;
      for (size_t t = 0; t < taps.size(); ++t) {
        float* out = to + (static_cast<int64_t>(t) * outs + o) * width;
        if (tap_count == 1) {
          std::copy_n(from, panel.columns, out);
        } else {
          for (int i = 0; i < panel.columns; ++i) out[i] = from[i * tap_count + taps[t]];
        }
      }
    }
  }
}

void StoreGradient(const Kernels& kernels, const float* source, int64_t count, bool accumulate,
                   float* target) {
  if (accumulate) {
    kernels.add(target, source, count, target);
  } else if (source != target) {
    std::copy_n(source, count, target);
  }
}

void StoreWeightGradient(const Kernels& kernels, const float* sums, int64_t outs, int64_t ins,
                         int64_t tap_count, bool accumulate, float* temporary, float* gradient) {
  const int64_t row = ins * tap_count;
  if (tap_count == 1 && !accumulate) {
    kernels.transpose(sums, ins, outs, outs, gradient, row);
    return;
  }
  float* turned = temporary + kChunk * tap_count * outs;  // one output's chunk
  for (int64_t c = 0; c < ins; c += kChunk) {
    const int64_t count = std::min(kChunk, ins - c);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t t = 0; t < tap_count; ++t) {
        std::copy_n(sums + (t * ins + c + i) * outs, outs, temporary + (i * tap_count + t) * outs);
      }
    }
    if (!accumulate) {
      kernels.transpose(temporary, count * tap_count, outs, outs, gradient + c * tap_count, row);
      continue;
    }
    for (int64_t o = 0; o < outs; ++o) {
      for (int64_t k = 0; k < count * tap_count; ++k) turned[k] = temporary[k * outs + o];
      kernels.add(gradient + o * row + c * tap_count, turned, count * tap_count,
                  gradient + o * row + c * tap_count);
    }
  }
}

}  // namespace runnel::fp32
