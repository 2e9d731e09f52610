#include "compress/grid.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/bit_pack.h"
#include "compress/codec_checks.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kHeaderBytes = 12;
enum Kind : int32_t { kOfRange = 0, kOfUnit = 1 };

// Elements that are coded at a time: whole bytes of a bit plane, whole blocks of random words.
constexpr size_t kPiece = 512;
using Codes = int32_t[kPiece];

int32_t TopOf(int bits) { return (1 << bits) - 1; }

struct Range {
  float low = 0, high = 0;
};

Range RangeOf(const float* x, size_t n) {
  constexpr size_t kLanes = 16;
  float low[kLanes], high[kLanes];
  std::fill_n(low, kLanes, x[0]);
  std::fill_n(high, kLanes, x[0]);
  size_t e = 0;
  for (; e + kLanes <= n; e += kLanes) {
    for (size_t i = 0; i < kLanes; ++i) {
      low[i] = x[e + i] < low[i] ? x[e + i] : low[i];
      high[i] = x[e + i] > high[i] ? x[e + i] : high[i];
    }
  }
  for (; e < n; ++e) {
    low[0] = std::min(low[0], x[e]);
    high[0] = std::max(high[0], x[e]);
  }
  // -0 as 0: which of both comes first must not decide.
  return {*std::min_element(low, low + kLanes) + 0.0f,
          *std::max_element(high, high + kLanes) + 0.0f};
}

// The levels low + scale * code of a range; T: float, or double where FP32 has no such difference or
// only subnormal ones.
template <typename T>
class RangeGrid {
 public:
  RangeGrid(const Range& range, int bits)
      : low_(range.low), high_(range.high), top_(static_cast<T>(TopOf(bits))) {
    const T scale = (T{range.high} - low_) / top_;
    // Of a range without width: one code.
    scale_ = scale > 0 ? scale : T{1};
    last_ = CodeOf(range.high, 0);
  }

  // noise: in [-1/2, 1/2), in levels.
  int32_t CodeOf(float x, float noise) const {
    constexpr T kRounder = T{1} / std::numeric_limits<T>::epsilon();  // rounds what is added to it
    const T v = (T{x} - low_) / scale_ + noise;
    const T not_below = v < 0 ? T{0} : v;
    const T clipped = not_below > top_ ? top_ : not_below;
    return static_cast<int32_t>((clipped + kRounder) - kRounder);
  }
  float ValueOf(int32_t code) const {
    const auto value = static_cast<float>(static_cast<T>(code) * scale_ + low_);
    return code == last_ ? high_ : value;
  }

 private:
  T low_;
  float high_;
  T top_;
  T scale_ = 1;
  int32_t last_ = 0;  // of the largest value
};

// Whether levels of the range have an exact width in FP32, or there is but one.
bool FitsFloat(const Range& range, int bits) {
  const float width = range.high - range.low;
  const float scale = width / static_cast<float>(TopOf(bits));
  return std::isfinite(width) && (width == 0 || scale >= std::numeric_limits<float>::min());
}

// Calls `use` with the grid of a range.
template <typename UseFn>
void WithGrid(const Range& range, int bits, UseFn use) {
  if (FitsFloat(range, bits)) {
    use(RangeGrid<float>(range, bits));
  } else {
    use(RangeGrid<double>(range, bits));
  }
}

// Codes of a payload, by pieces.
class CodePlaces {
 public:
  CodePlaces(int bits, size_t elements)
      : planes_(bits >= 8 ? bits - 8 : bits), has_bytes_(bits >= 8), elements_(elements) {}

  size_t bytes() const { return bytes_at() + (has_bytes_ ? elements_ : 0); }

  // first: a multiple of kPiece.
  void Store(const Codes& codes, size_t first, size_t n, std::byte* to) const {
    uint8_t part[kPiece];
    if (has_bytes_) {
      for (size_t e = 0; e < n; ++e)
        to[bytes_at() + first + e] = static_cast<std::byte>(codes[e] & 0xFF);
    }
    if (planes_ == 0) return;
    const int shift = has_bytes_ ? 8 : 0;
    for (size_t e = 0; e < n; ++e) part[e] = static_cast<uint8_t>(codes[e] >> shift);
    PackPlanes(part, n, planes_, to + first / 8, PlaneBytes(elements_));
  }
  void Load(const std::byte* from, size_t first, size_t n, Codes& codes) const {
    uint8_t part[kPiece] = {};
    if (planes_ > 0) UnpackPlanes(from + first / 8, PlaneBytes(elements_), n, planes_, part);
    for (size_t e = 0; e < n; ++e) codes[e] = part[e];
    if (!has_bytes_) return;
    for (size_t e = 0; e < n; ++e)
      codes[e] = codes[e] << 8 | std::to_integer<int32_t>(from[bytes_at() + first + e]);
  }
  // Whether bits that stand for no element are 0.
  bool IsClean(const std::byte* from) const {
    if (elements_ % 8 == 0) return true;
    const auto unused = static_cast<std::byte>(0xFF >> (elements_ % 8));
    for (int plane = 1; plane <= planes_; ++plane) {
      const std::byte last = from[static_cast<size_t>(plane) * PlaneBytes(elements_) - 1];
      if ((last & unused) != std::byte{0}) return false;
    }
    return true;
  }

 private:
  size_t bytes_at() const { return static_cast<size_t>(planes_) * PlaneBytes(elements_); }

  int planes_;
  bool has_bytes_;
  size_t elements_;
};

Bytes GridBytes(int bits, const Shape& shape) {
  const CodePlaces places(bits, static_cast<size_t>(shape.elements()));
  return Bytes(static_cast<int64_t>(kHeaderBytes + places.bytes()));
}

// The code whose value c / top is x; -1: there is none. As recipe dorefa computes it.
int32_t UnitCode(float x, float top, float unit) {
  const float v = x * top;
  const float clipped = v < 0.0f ? 0.0f : (v > top ? top : v);
  const float code = (clipped + 0x1p23f) - 0x1p23f;
  return code * unit == x ? static_cast<int32_t>(code) : -1;
}

bool IsOfUnit(const float* x, size_t n, int bits) {
  const auto top = static_cast<float>(TopOf(bits));
  const float unit = 1.0f / top;
  for (size_t e = 0; e < n; ++e) {
    if (UnitCode(x[e], top, unit) < 0) return false;
  }
  return true;
}

class GridEncoder final : public Encoder {
 public:
  GridEncoder(int bits, const CodecKernels& kernels, const EncoderKey& key)
      : bits_(bits), kernels_(kernels), key_(key) {}

  absl::Status Encode(const TensorView& x, Sequence sequence, bool /*restart*/,
                      absl::Span<std::byte> payload) override {
    RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), GridBytes(bits_, x.shape)));
    const auto n = static_cast<size_t>(x.shape.elements());
    if (kernels_.max_abs_bits(x.f32(), n) >= kInfinityBits) return NonFiniteError(x.f32(), n);
    const bool is_gradient = key_.purpose == RandomPurpose::kCodecBackward;
    const bool is_of_unit = !is_gradient && IsOfUnit(x.f32(), n, bits_);
    const Range range = is_of_unit ? Range{0, 1} : RangeOf(x.f32(), n);
    StoreInt32(bits_ | (is_of_unit ? kOfUnit : kOfRange) << 8, payload.data());
    StoreFloat(range.low, payload.data() + 4);
    StoreFloat(range.high, payload.data() + 8);
    std::byte* codes = payload.data() + kHeaderBytes;
    if (is_of_unit) {
      const auto top = static_cast<float>(TopOf(bits_));
      StoreCodes(x.f32(), n, codes, [top, unit = 1.0f / top](float value, float) {
        return UnitCode(value, top, unit);
      });
      return absl::OkStatus();
    }
    if (is_gradient) DrawFrom(sequence);
    WithGrid(range, bits_, [&](const auto& grid) {
      StoreCodes(x.f32(), n, codes,
                 [&grid](float value, float noise) { return grid.CodeOf(value, noise); });
    });
    draws_.reset();
    return absl::OkStatus();
  }

  std::string SaveState() const override { return ""; }
  absl::Status RestoreState(absl::string_view state) override { return CheckNoState(state); }

 private:
  void DrawFrom(Sequence sequence) {
    draws_.emplace(key_.run_seed, key_.purpose, key_.boundary,
                   static_cast<uint64_t>(sequence.value()));
  }
  // The noise of elements first.. of the micro-batch; without draws it stays 0.
  void FillNoise(size_t first, float* noise) const {
    if (!draws_.has_value()) return;
    for (size_t e = 0; e < kPiece; e += 4) {
      const auto words = draws_->Block((first + e) / 4);
      for (size_t i = 0; i < 4; ++i)
        noise[e + i] = static_cast<float>(words[i] >> 12) * 0x1p-20f - 0.5f;
    }
  }
  template <typename CodeFn>
  void StoreCodes(const float* x, size_t n, std::byte* to, CodeFn code_of) const {
    const CodePlaces places(bits_, n);
    Codes codes;
    float noise[kPiece] = {};
    for (size_t first = 0; first < n; first += kPiece) {
      const size_t count = std::min(kPiece, n - first);
      FillNoise(first, noise);
      for (size_t e = 0; e < count; ++e) codes[e] = code_of(x[first + e], noise[e]);
      places.Store(codes, first, count, to);
    }
  }

  const int bits_;
  const CodecKernels& kernels_;
  const EncoderKey key_;
  std::optional<CounterRandom> draws_;  // while a gradient is encoded
};

template <typename ValueFn>
void LoadValues(const CodePlaces& places, const std::byte* from, size_t n, float* out,
                ValueFn value_of) {
  Codes codes;
  for (size_t first = 0; first < n; first += kPiece) {
    const size_t count = std::min(kPiece, n - first);
    places.Load(from, first, count, codes);
    for (size_t e = 0; e < count; ++e) out[first + e] = value_of(codes[e]);
  }
}

class GridCodec final : public Codec {
 public:
  GridCodec(std::string name, int bits, const CodecKernels& kernels)
      : name_(std::move(name)), bits_(bits), kernels_(kernels) {}

  std::string name() const override { return name_; }
  Bytes EncodedBytes(const Shape& shape) const override { return GridBytes(bits_, shape); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<GridEncoder>(bits_, kernels_, key);
  }

  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), GridBytes(bits_, out.shape), out));
    const int32_t kind = LoadInt32(payload.data()) >> 8;
    const Range range = {LoadFloat(payload.data() + 4), LoadFloat(payload.data() + 8)};
    const auto n = static_cast<size_t>(out.shape.elements());
    const std::byte* codes = payload.data() + kHeaderBytes;
    const CodePlaces places(bits_, n);
    if ((LoadInt32(payload.data()) & 0xFF) != bits_ || (kind != kOfRange && kind != kOfUnit))
      return absl::InvalidArgumentError(absl::StrCat(name_, ": the payload is of another codec"));
    if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low > range.high) {
      return absl::InvalidArgumentError(absl::StrCat(name_, ": the range from ", range.low, " to ",
                                                     range.high, " is impossible"));
    }
    if (kind == kOfUnit && (LoadInt32(payload.data() + 4) != 0 || range.high != 1)) {
      return absl::InvalidArgumentError(absl::StrCat(name_, ": the range from ", range.low, " to ",
                                                     range.high, " is not that of 0 to 1"));
    }
    if (!places.IsClean(codes))
      return absl::InvalidArgumentError(absl::StrCat(name_, ": bits of no element are not 0"));
    if (kind == kOfUnit) {
      LoadValues(places, codes, n, out.f32(),
                 [unit = 1.0f / static_cast<float>(TopOf(bits_))](int32_t code) {
                   return static_cast<float>(code) * unit;
                 });
      return absl::OkStatus();
    }
    WithGrid(range, bits_, [&](const auto& grid) {
      LoadValues(places, codes, n, out.f32(), [&grid](int32_t code) { return grid.ValueOf(code); });
    });
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const int bits_;
  const CodecKernels& kernels_;
};

}  // namespace

int BitsInPayload(absl::Span<const std::byte> payload) {
  return payload.empty() ? 0 : std::to_integer<int>(payload.front());
}

std::unique_ptr<const Codec> MakeGridCodec(int bits, const CodecKernels& kernels) {
  return std::make_unique<GridCodec>(absl::StrCat("grid:", bits), bits, kernels);
}

std::unique_ptr<const Codec> MakeRecipeCodec(const CodecKernels& kernels) {
  return std::make_unique<GridCodec>("recipe", kRecipeBits, kernels);
}

}  // namespace runnel
