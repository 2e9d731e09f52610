#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "central/data/loaders.h"
#include "central/data/memory_datasets.h"
#include "central/data/portable_math.h"

namespace runnel::data {
namespace {

constexpr int kSide = 28;
constexpr int kPixels = kSide * kSide;
constexpr int kClasses = 10;
constexpr int64_t kTrainSamples = 6000;
constexpr int64_t kTestSamples = 1000;
// CounterRandom's index of each split's samples: the draws of no two samples overlap.
constexpr uint64_t kTrainIndex = 0;
constexpr uint64_t kTestIndex = 1;

struct Point {
  double x;
  double y;
};
using Stroke = std::vector<Point>;
using Glyph = std::vector<Stroke>;

// Part of an ellipse from one angle to another, in turns: 0 right, 0.25 down, 0.5 left, 0.75 up.
Stroke Arc(Point centre, double radius_x, double radius_y, double from, double to) {
  constexpr int kPieces = 12;
  Stroke stroke;
  for (int i = 0; i <= kPieces; ++i) {
    const double turns = from + (to - from) * i / kPieces;
    stroke.push_back(
        {centre.x + radius_x * CosTurns(turns), centre.y + radius_y * SinTurns(turns)});
  }
  return stroke;
}

// The ten digits in a unit square, y downwards.
const std::array<Glyph, kClasses>& Glyphs() {
  static const std::array<Glyph, kClasses> glyphs = {
      Glyph{Arc({.5, .5}, .3, .45, 0, 1)},
      Glyph{{{.34, .22}, {.54, .05}, {.54, .95}}},
      Glyph{Arc({.5, .3}, .28, .25, .5, 1.1), {{.72, .45}, {.2, .95}, {.82, .95}}},
      Glyph{Arc({.47, .28}, .27, .23, .55, 1.25), Arc({.47, .73}, .31, .22, -.25, .45)},
      Glyph{{{.62, .05}, {.17, .65}, {.86, .65}}, {{.62, .05}, {.62, .95}}},
      Glyph{{{.76, .05}, {.29, .05}, {.25, .46}}, Arc({.47, .68}, .31, .27, -.36, .42)},
      Glyph{{{.66, .05}, {.4, .28}, {.26, .62}}, Arc({.51, .7}, .26, .25, 0, 1)},
      Glyph{{{.2, .06}, {.8, .06}, {.42, .95}}},
      Glyph{Arc({.5, .28}, .22, .22, 0, 1), Arc({.5, .73}, .28, .22, 0, 1)},
      Glyph{Arc({.49, .3}, .26, .25, 0, 1), {{.75, .3}, {.7, .65}, {.52, .95}}},
  };
  return glyphs;
}

// Places a glyph as a hand would: unit square to pixels.
class Placement {
 public:
  explicit Placement(Draws& draws) {
    const double turns = draws.Between(-.055, .055);  // 20 degrees either way
    const double slant = draws.Between(-.3, .3);
    const double width = draws.Between(13, 21);
    const double height = draws.Between(16, 22);
    const double cosine = CosTurns(turns);
    const double sine = SinTurns(turns);
    // Rotation of (slanted and scaled) coordinates around the square's centre.
    xx_ = width * cosine;
    xy_ = -height * (slant * cosine + sine);
    yx_ = width * sine;
    yy_ = height * (cosine - slant * sine);
    x0_ = kSide / 2.0 + draws.Between(-3.5, 3.5);
    y0_ = kSide / 2.0 + draws.Between(-3.5, 3.5);
  }
  Point operator()(Point p) const {
    const double u = p.x - .5;
    const double v = p.y - .5;
    return {x0_ + xx_ * u + xy_ * v, y0_ + yx_ * u + yy_ * v};
  }

 private:
  double xx_, xy_, yx_, yy_, x0_, y0_;
};

// Brightness in [0, 1] of each pixel; strokes cover, they do not add up.
class Canvas {
 public:
  Canvas() : pixels_(kPixels, 0.0) {}

  void Line(Point from, Point to, double radius, double ink) {
    const double reach = radius + .5;
    const int left = Clamp(std::min(from.x, to.x) - reach);
    const int right = Clamp(std::max(from.x, to.x) + reach);
    const int top = Clamp(std::min(from.y, to.y) - reach);
    const int bottom = Clamp(std::max(from.y, to.y) + reach);
    const double dx = to.x - from.x;
    const double dy = to.y - from.y;
    const double length2 = std::max(dx * dx + dy * dy, 1e-9);
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        const double px = x + .5 - from.x;
        const double py = y + .5 - from.y;
        const double along = std::clamp((px * dx + py * dy) / length2, 0.0, 1.0);
        const double ox = px - along * dx;
        const double oy = py - along * dy;
        // Full ink within the pen's radius, none half a pixel beyond it.
        const double cover = std::clamp(reach - std::sqrt(ox * ox + oy * oy), 0.0, 1.0);
        double& pixel = pixels_[y * kSide + x];
        pixel = std::max(pixel, cover * ink);
      }
    }
  }

  void Write(Draws& draws, double noise, uint8_t* out) const {
    for (int i = 0; i < kPixels; ++i) {
      const double value = std::clamp(pixels_[i] + noise * draws.Noise(), 0.0, 1.0);
      out[i] = static_cast<uint8_t>(value * 255 + .5);
    }
  }

 private:
  static int Clamp(double x) { return static_cast<int>(std::clamp(x, 0.0, kSide - 1.0)); }
  std::vector<double> pixels_;
};

void DrawSample(int digit, const CounterRandom& random, uint8_t* out) {
  Draws draws(random);
  const Placement place(draws);
  const double radius = draws.Between(.6, 1.4);
  const double ink = draws.Between(.65, 1);
  Canvas canvas;
  for (const Stroke& stroke : Glyphs()[digit]) {
    // Every stroke is a little off, so that no two copies are affine images of each other.
    const Point off = {draws.Between(-.04, .04), draws.Between(-.04, .04)};
    const auto pixel = [&](Point p) { return place({p.x + off.x, p.y + off.y}); };
    for (size_t i = 1; i < stroke.size(); ++i) {
      canvas.Line(pixel(stroke[i - 1]), pixel(stroke[i]), radius, ink);
    }
  }
  const uint32_t strays = draws.Below(4);
  for (uint32_t i = 0; i < strays; ++i) {
    const Point from = {draws.Between(0, kSide), draws.Between(0, kSide)};
    const Point to = {from.x + draws.Between(-5, 5), from.y + draws.Between(-5, 5)};
    canvas.Line(from, to, .5, draws.Between(.3, .7));
  }
  canvas.Write(draws, draws.Between(.02, .1), out);
}

std::unique_ptr<Dataset> Draw(int64_t samples, uint64_t seed, uint64_t split) {
  std::vector<uint8_t> pixels(samples * kPixels);
  std::vector<uint8_t> labels(samples);
  for (int64_t i = 0; i < samples; ++i) {
    labels[i] = static_cast<uint8_t>(i % kClasses);
    DrawSample(labels[i], CounterRandom(seed, RandomPurpose::kSyntheticData, split, i),
               &pixels[i * kPixels]);
  }
  return std::make_unique<ImageDataset>(Shape{1, kSide, kSide}, kClasses,
                                        std::vector<ChannelScale>{kMnistScale}, std::move(pixels),
                                        std::move(labels));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadSyntheticDigits(absl::string_view, uint64_t seed) {
  return DatasetSplits{Draw(kTrainSamples, seed, kTrainIndex),
                       Draw(kTestSamples, seed, kTestIndex)};
}

}  // namespace runnel::data
