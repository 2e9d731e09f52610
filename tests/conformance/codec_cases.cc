#include "tests/conformance/codec_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "compress/auto_codec.h"

namespace runnel::codec_conformance {
namespace {

constexpr double kElsewhere = std::numeric_limits<double>::infinity();

double NoError(const Crossing&, size_t) { return 0; }

int OneField(int) { return 1; }
int Alphas(int bits) { return bits + 1; }

// A power of two is 128 steps of the scale and becomes 127: one step.
double Int8Bound(const Crossing& crossing, size_t) {
  int32_t exponent;
  std::memcpy(&exponent, crossing.payload.data(), 4);
  return std::max(std::ldexp(1.0, exponent), 0x1p-149);
}

// A step of the scale. The scale's cap and coarse scales are stochastic_test.cc's business.
double StochasticBound(const Crossing& crossing, size_t) {
  const float scale = Field(crossing.payload, 0);
  return scale < 0x1p-140f || scale > 0x1p119f ? kElsewhere : scale * (1 + 1e-5);
}

// Half a step within the range, what is clipped beyond it.
double UniformBound(const Crossing& crossing, size_t e) {
  const double step = Field(crossing.payload, 0), half = 1 << (crossing.bits() - 1);
  const double x = crossing.x[e];
  const double clipped = std::max({0.0, x - (half - 1) * step, -half * step - x});
  return (clipped + step / 2) * (1 + 1e-6);
}

// The distance to the nearest of the levels that were sent.
double MbqBound(const Crossing& crossing, size_t e) {
  const double x = crossing.x[e];
  const int k = crossing.bits();
  double nearest = std::numeric_limits<double>::infinity();
  for (int code = 0; code < (1 << k); ++code) {
    double level = 0;
    for (int i = 0; i < k; ++i) {
      const double alpha = Field(crossing.payload, i);
      level += (code >> i) & 1 ? alpha : -alpha;
    }
    nearest = std::min(nearest, std::abs(level - x));
  }
  const double correction = std::abs(static_cast<double>(Field(crossing.payload, k)));
  return (nearest + correction) * (1 + 1e-6) + 1e-6 * std::abs(x) + 1e-44;
}

double TileStep(const Crossing& crossing, size_t e) {
  const bool has_marks = crossing.codec.family == "aqsgd";
  const size_t marks = has_marks ? 4 * static_cast<size_t>(crossing.shape[0]) : 0;
  const size_t tile = marks + TilesAt(crossing.codec.family) + e / 256 * (4 + 32 * crossing.bits());
  uint32_t step = 0;
  std::memcpy(&step, crossing.payload.data() + tile, 4);
  step &= 0xFFFF0000u;
  float value;
  std::memcpy(&value, &step, 4);
  return value;
}

// Beyond 2^100 tiles are held at it.
double TileBound(const Crossing& crossing, size_t e) {
  if (std::abs(crossing.x[e]) > 0x1p100f) return kElsewhere;
  return TileStep(crossing, e) * (1 + 1e-3) + 0x1p-90;
}

// Of a rotated tile an error spreads: at most 16 steps, or what was clipped, of which all of the
// tile is a bound.
double RotatedBound(const Crossing& crossing, size_t e) {
  const size_t first = e / 256 * 256;
  const size_t end = std::min(crossing.x.size(), first + 256);
  double most = 0;
  for (size_t i = first; i < end; ++i) most = std::max(most, std::abs(double{crossing.x[i]}));
  if (most > 0x1p100) return kElsewhere;
  const double clipped = crossing.codec.family == "hadamard" ? 0 : 2 * most;
  const double step = TileStep(crossing, e) * (1 + 1e-3);
  return 16 * (step + clipped) + 1e-4 * std::abs(crossing.x[e]) + 0x1p-90;
}

// Half of what two neighbours differ by, and what is beyond the largest number.
double MxBound(const Crossing& crossing, size_t e) {
  const int bits = crossing.bits();
  const int mantissa = bits == 4 ? 1 : bits == 6 ? 2 : 3;
  const double most = bits == 4 ? 6 : bits == 6 ? 28 : 448;
  const double least = bits == 4 ? 0.5 : bits == 6 ? 0x1p-4 : 0x1p-9;
  const auto byte = std::to_integer<int>(crossing.payload[e / 32 * (1 + 4 * bits)]);
  const double scale = std::ldexp(1.0, byte - 127), x = std::abs(crossing.x[e]);
  return std::max({std::ldexp(x, -mantissa - 1), least * scale / 2, x - most * scale});
}

// Half of what two neighbours differ by; fp16 also what is beyond its largest value.
template <int kMantissaBits, int kLeast>
double NumberTypeBound(const Crossing& crossing, size_t e) {
  const double x = std::abs(double{crossing.x[e]});
  const bool scales = crossing.codec.family[0] == 'e';
  const double scale = scales ? double{Field(crossing.payload, 0)} : 1;
  const double beyond = crossing.codec.family == "fp16" ? x - 65504 : 0;
  return std::max({std::ldexp(x, -kMantissaBits - 1), std::ldexp(scale, kLeast - 1), beyond});
}

// 20 octaves have 126 steps; among FP32's denormals a step is as large as at 2^-126.
double Topk8Bound(const Crossing& crossing, size_t e) {
  return 0.085 * (std::abs(crossing.x[e]) + 0x1p-126);
}

// A step of the range, which a gradient may go up or down.
double GridBound(const Crossing& crossing, size_t) {
  const double low = Field(crossing.payload, 1), high = Field(crossing.payload, 2);
  const int bits = crossing.codec.parameter.has_value() ? crossing.bits() : 8;
  return (high - low) / ((1 << bits) - 1) * (1 + 1e-5) +
         1e-6 * std::max(std::abs(low), std::abs(high)) + 0x1p-126;
}

int TwoFields(int) { return 2; }
int ThreeFields(int) { return 3; }

// What is left of a tensor after a projection is no longer than the tensor.
double LowrankBound(const Crossing& crossing, size_t) {
  double square = 0;
  for (float value : crossing.x) square += double{value} * value;
  return square > 0x1p200 ? kElsewhere : std::sqrt(square) * (1 + 1e-6) + 1e-40;
}

// That of the candidate.
double AutoBound(const Crossing& crossing, size_t e) {
  const std::string family(ChosenFamily(crossing.payload));
  const Payload rest(crossing.payload.begin() + 1, crossing.payload.end());
  const Crossing inner = {{family, crossing.codec.parameter}, crossing.x, crossing.shape, rest};
  return CaseOf(family).bound(inner, e);
}

// What is decoded is what the codec without entropy decodes (tile_ans_test.cc).
double AnsBound(const Crossing&, size_t) { return kElsewhere; }

constexpr FamilyCase kCases[] = {
    {.family = "amsgrad_mbq", .bound = MbqBound, .fields = Alphas},
    {.family = "aqsgd", .bound = RotatedBound, .draws = true, .loss = 1.5},
    {.family = "auto", .bound = AutoBound, .draws = true},
    {.family = "bf16", .bound = NumberTypeBound<7, -133>},
    {.family = "e4m3", .bound = NumberTypeBound<3, -9>, .fields = OneField},
    {.family = "e5m2", .bound = NumberTypeBound<2, -16>, .fields = OneField},
    {.family = "eden", .bound = RotatedBound, .draws = true},
    {.family = "eden_ans", .bound = AnsBound, .draws = true},
    {.family = "fp16", .bound = NumberTypeBound<10, -24>},
    {.family = "grid",
     .bound = GridBound,
     .fields = ThreeFields,
     .draws = true,
     .loss = kElsewhere,
     .spread = 0.6},
    {.family = "hadamard", .bound = RotatedBound, .draws = true, .loss = 1.5},
    {.family = "hadamard_ans", .bound = AnsBound, .draws = true, .loss = 1.5},
    {.family = "hadamard_ef", .bound = RotatedBound, .draws = true},
    {.family = "identity", .bound = NoError, .fields = OneField},
    {.family = "int8", .bound = Int8Bound, .fields = OneField},
    {.family = "lowrank", .bound = LowrankBound, .fields = OneField, .draws = true, .loss = 1},
    {.family = "mbq", .bound = MbqBound, .fields = Alphas},
    {.family = "mbq_c", .bound = MbqBound, .fields = OneField},
    {.family = "mx:fp", .bound = MxBound},
    {.family = "recipe", .bound = GridBound, .fields = ThreeFields, .draws = true, .spread = 0.6},
    {.family = "stochastic",
     .bound = StochasticBound,
     .fields = OneField,
     .draws = true,
     .spread = 0.3},
    {.family = "tile", .bound = TileBound, .draws = true, .loss = 1.5},
    {.family = "tile_ans", .bound = AnsBound, .draws = true, .loss = 1.5},
    {.family = "topk", .bound = NoError, .fields = OneField, .sparse = true, .loss = 1},
    {.family = "topk8", .bound = Topk8Bound, .fields = TwoFields, .sparse = true, .loss = 1},
    {.family = "uniform", .bound = UniformBound, .fields = OneField},
};

}  // namespace

const FamilyCase& CaseOf(const std::string& name) {
  const std::string family = CodecId::Parse(name).value().family;
  for (const FamilyCase& one : kCases) {
    if (one.family == family) return one;
  }
  std::fprintf(stderr, "tests/conformance/codec_cases.cc has no row for codec %s\n",
               family.c_str());
  std::abort();
}

float Field(const Payload& payload, int index) {
  float value;
  std::memcpy(&value, payload.data() + 4 * index, 4);
  return value;
}

size_t TilesAt(const std::string& family) { return family == "tile" ? 0 : 8; }

}  // namespace runnel::codec_conformance
