#include "kernels/backends/cpu/grids/code_patches.h"

#include <algorithm>

namespace runnel::cpu {
namespace {

// Patches that stay in a cache until the product has read them.
constexpr int64_t kMostPatchBytes = 1 << 20;
constexpr int64_t kReadBehind = 64;

}  // namespace

CodePatches::CodePatches(const OutputTaps& taps, int64_t groups, int64_t source_h, int64_t source_w)
    : taps_(taps), groups_(groups), source_h_(source_h), source_w_(source_w) {}

ConvShape CodePatches::Shape(int64_t samples, int64_t out_c) const {
  ConvShape shape;
  shape.batch = samples;
  shape.in_h = shape.out_h = static_cast<int64_t>(taps_.h.of.size());
  shape.in_w = shape.out_w = taps_.width();
  shape.in_c = pixel();
  shape.out_c = out_c;
  shape.groups = groups_;
  return shape;
}

int64_t CodePatches::SamplesAtOnce(int64_t batch) const {
  return std::clamp<int64_t>(kMostPatchBytes / elements(), 1, batch);
}

int8_t* CodePatches::Take(const Call& call, int64_t samples) const {
  return call.Take<int8_t>(samples * elements() + kReadBehind);
}

void CodePatches::Fill(const Machine& machine, const int8_t* source, int64_t samples,
                       int8_t* patches) const {
  const auto rows = static_cast<int64_t>(taps_.h.of.size());
  ParallelFor(machine, samples * rows, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      FillRow(source + i / rows * source_elements(), i % rows,
              patches + i * taps_.width() * pixel());
  });
}

void CodePatches::FillRow(const int8_t* source, int64_t y, int8_t* patches) const {
  const int64_t terms = taps_.terms, size = taps_.taps * terms;
  std::fill_n(patches, taps_.width() * pixel(), int8_t{0});
  for (int64_t x = 0; x < taps_.width(); ++x, patches += pixel()) {
    for (const AxisTaps::Tap& h : taps_.h.of[y]) {
      for (const AxisTaps::Tap& w : taps_.w.of[x]) {
        const int8_t* from = source + (h.source * source_w_ + w.source) * groups_ * terms;
        int8_t* to = patches + (h.tap * taps_.kernel_w + w.tap) * terms;
        for (int64_t g = 0; g < groups_; ++g) std::copy_n(from + g * terms, terms, to + g * size);
      }
    }
  }
}

}  // namespace runnel::cpu
