#include "compress/tile/tile.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/float_state.h"
#include "compress/kernels/tile_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kKeyBytes = 8;
// The block of a micro-batch's stream that the key is taken from: far behind those for elements.
constexpr uint64_t kKeyBlock = uint64_t{1} << 40;
// Largest step that an encoder sends: twice a sum of 16 magnitudes over one level.
constexpr float kMaxStep = 0x1p106f;

constexpr char kStateVersion = 1;

std::string NameOf(const TileOptions& options) {
  return absl::StrCat(!options.rotate    ? "tile:"
                      : options.feedback ? "hadamard_ef:"
                      : options.unbiased ? "eden:"
                                         : "hadamard:",
                      options.bits);
}

size_t KeyBytes(const TileOptions& options) { return options.rotate ? kKeyBytes : 0; }

Bytes PayloadBytes(const TileOptions& options, const Shape& shape) {
  const auto n = static_cast<size_t>(shape.elements());
  size_t bytes = KeyBytes(options) + n / kTileElements * TileBytes(kTileElements, options.bits);
  const size_t rest = n % kTileElements;
  if (rest > 0) bytes += TileBytes(TileWidth(rest), options.bits);
  return Bytes(static_cast<int64_t>(bytes));
}

TileCoding CodingOf(const TileOptions& options, const std::byte* payload) {
  TileCoding coding{options.bits, options.rotate, {}};
  if (!options.rotate) return coding;
  for (size_t i = 0; i < 2; ++i) {
    coding.sign_key[i] = static_cast<uint32_t>(LoadInt32(payload + 4 * i));
  }
  return coding;
}

// The two bfloat16 of a tile.
float CentreOf(const std::byte* header) {
  return std::bit_cast<float>(static_cast<uint32_t>(LoadInt32(header)) << 16);
}
float StepOf(const std::byte* header) {
  return std::bit_cast<float>(static_cast<uint32_t>(LoadInt32(header)) & 0xFFFF0000u);
}
bool IsPossibleCentre(float centre) { return std::abs(centre) <= kMaxTileMagnitude; }
bool IsPossibleStep(float step) {
  return !std::signbit(step) && step <= kMaxStep && (step == 0.0f || step >= kMinTileStep);
}
bool IsPossible(const std::byte* header) {
  return IsPossibleCentre(CentreOf(header)) && IsPossibleStep(StepOf(header));
}

// Both as bfloat16; the step is rounded to the nearest one.
void StoreHeader(float centre, float step, std::byte* header) {
  const uint32_t bits = std::bit_cast<uint32_t>(step);
  const uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u;
  StoreInt32(static_cast<int32_t>(rounded | std::bit_cast<uint32_t>(centre) >> 16), header);
}

// |y|^2 / <y, decoded> with y = x - centre; 1 where that says nothing. Products of floats are exact
// in double, and the lanes of the sums are fixed: the same on all machines.
double UnbiasingRatio(const float* x, const float* decoded, size_t count, float centre) {
  constexpr size_t kLanes = 8;
  double square[kLanes] = {}, product[kLanes] = {};
  for (size_t e = 0; e < count; ++e) {
    const double y = static_cast<double>(x[e] - centre);
    square[e % kLanes] += y * y;
    product[e % kLanes] += y * static_cast<double>(decoded[e]);
  }
  for (size_t lane = 1; lane < kLanes; ++lane) {
    square[0] += square[lane];
    product[0] += product[lane];
  }
  return square[0] > 0 && product[0] > 0 ? square[0] / product[0] : 1.0;
}

class TileEncoder final : public Encoder {
 public:
  TileEncoder(const TileOptions& options, const CodecKernels& kernels, const EncoderKey& key)
      : options_(options), kernels_(kernels), key_(key) {}

  absl::Status Encode(const TensorView& x, Sequence sequence, bool restart,
                      absl::Span<std::byte> payload) override;
  std::string SaveState() const override { return SaveFloats(Tag(), errors_); }
  absl::Status RestoreState(absl::string_view state) override {
    if (!options_.feedback) return CheckNoState(state);
    RUNNEL_ASSIGN_OR_RETURN(errors_, RestoreFloats(NameOf(options_), Tag(), state));
    return absl::OkStatus();
  }

 private:
  std::string Tag() const { return {'E', kStateVersion, static_cast<char>(options_.bits), 0}; }
  // x plus the error of the micro-batch before (with feedback), clipped to the range of tiles.
  const float* Prepare(const float* x, size_t n, bool restart);
  // Replaces the steps of encoded tiles by those with which x arrives without bias.
  void Unbias(const float* x, size_t n, const TileCoding& coding, std::byte* tiles);

  const TileOptions options_;
  const CodecKernels& kernels_;
  const EncoderKey key_;
  std::vector<float> errors_;  // feedback: by element; empty before the first micro-batch
  std::vector<float> sum_;     // encoded in place of x
  // unbiased: what the tiles say of x less its centre, and the centres.
  std::vector<float> decoded_;
  std::vector<float> centres_;
};

const float* TileEncoder::Prepare(const float* x, size_t n, bool restart) {
  sum_.assign(x, x + n);
  if (options_.feedback) {
    if (restart || errors_.size() != n) errors_.assign(n, 0.0f);
    for (size_t e = 0; e < n; ++e) sum_[e] += errors_[e];
  }
  for (float& value : sum_) value = std::clamp(value, -kMaxTileMagnitude, kMaxTileMagnitude);
  return sum_.data();
}

void TileEncoder::Unbias(const float* x, size_t n, const TileCoding& coding, std::byte* tiles) {
  const size_t tile_bytes = TileBytes(kTileElements, coding.bits);
  decoded_.resize(n);
  centres_.clear();
  for (size_t first = 0; first < n; first += kTileElements) {
    std::byte* header = tiles + first / kTileElements * tile_bytes;
    centres_.push_back(CentreOf(header));
    StoreHeader(0.0f, StepOf(header), header);
  }
  kernels_.tile->decode(tiles, n, coding, decoded_.data());
  for (size_t tile = 0; tile < centres_.size(); ++tile) {
    std::byte* header = tiles + tile * tile_bytes;
    const size_t first = tile * kTileElements;
    const double ratio = UnbiasingRatio(x + first, decoded_.data() + first,
                                        std::min(kTileElements, n - first), centres_[tile]);
    const float step = StepOf(header);
    const float wanted = static_cast<float>(step * ratio);
    StoreHeader(centres_[tile], step == 0.0f ? step : std::max(wanted, kMinTileStep), header);
  }
}

absl::Status TileEncoder::Encode(const TensorView& x, Sequence sequence, bool restart,
                                 absl::Span<std::byte> payload) {
  RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), PayloadBytes(options_, x.shape)));
  const auto n = static_cast<size_t>(x.shape.elements());
  const CounterRandom random(key_.run_seed, key_.purpose, key_.boundary,
                             static_cast<uint64_t>(sequence.value()));
  if (options_.rotate) {
    const std::array<uint32_t, 4> words = random.Block(kKeyBlock);
    for (size_t i = 0; i < 2; ++i)
      StoreInt32(static_cast<int32_t>(words[i]), payload.data() + 4 * i);
  }
  const TileCoding coding = CodingOf(options_, payload.data());
  const bool stochastic =
      key_.purpose == RandomPurpose::kCodecBackward && !options_.feedback && !options_.unbiased;
  const CounterRandom* rounding = stochastic ? &random : nullptr;
  std::byte* tiles = payload.data() + KeyBytes(options_);
  if (!options_.feedback && kernels_.tile->encode(x.f32(), n, coding, rounding, tiles)) {
    if (options_.unbiased) Unbias(x.f32(), n, coding, tiles);
    return absl::OkStatus();
  }
  if (kernels_.max_abs_bits(x.f32(), n) >= kInfinityBits) return NonFiniteError(x.f32(), n);
  const float* held = Prepare(x.f32(), n, restart);
  kernels_.tile->encode(held, n, coding, rounding, tiles);
  if (options_.unbiased) Unbias(held, n, coding, tiles);
  if (options_.feedback) {
    kernels_.tile->decode(tiles, n, coding, errors_.data());
    for (size_t e = 0; e < n; ++e) errors_[e] = sum_[e] - errors_[e];
  }
  return absl::OkStatus();
}

class TileCodec final : public Codec {
 public:
  TileCodec(const TileOptions& options, const CodecKernels& kernels)
      : options_(options), kernels_(kernels) {}

  std::string name() const override { return NameOf(options_); }
  Bytes EncodedBytes(const Shape& shape) const override { return PayloadBytes(options_, shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<TileEncoder>(options_, kernels_, key);
  }
  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override;

 private:
  absl::Status ImpossibleError(const std::byte* header, size_t tile) const;

  const TileOptions options_;
  const CodecKernels& kernels_;
};

absl::Status TileCodec::ImpossibleError(const std::byte* header, size_t tile) const {
  const float centre = CentreOf(header);
  if (!IsPossibleCentre(centre)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name(), ": centre ", centre, " of tile ", tile, " is impossible"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name(), ": step ", StepOf(header), " of tile ", tile, " is impossible"));
}

absl::Status TileCodec::Decode(absl::Span<const std::byte> payload,
                               const MutableTensorView& out) const {
  RUNNEL_RETURN_IF_ERROR(
      CheckDecodeArguments(payload.size(), PayloadBytes(options_, out.shape), out));
  const auto n = static_cast<size_t>(out.shape.elements());
  const std::byte* tiles = payload.data() + KeyBytes(options_);
  const size_t tile_bytes = TileBytes(kTileElements, options_.bits);
  for (size_t tile = 0; tile * kTileElements < n; ++tile) {
    const std::byte* header = tiles + tile * tile_bytes;
    if (!IsPossible(header)) return ImpossibleError(header, tile);
  }
  kernels_.tile->decode(tiles, n, CodingOf(options_, payload.data()), out.f32());
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<const Codec> MakeTileCodec(const TileOptions& options,
                                           const CodecKernels& kernels) {
  return std::make_unique<TileCodec>(options, kernels);
}

}  // namespace runnel
