#include "compress/topk.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr uint32_t kMagnitudeBits = 0x7FFFFFFFu;
constexpr size_t kIndexBytes = sizeof(uint32_t);
constexpr size_t kStateHeaderBytes = 12;
constexpr size_t kStateTailBytes = sizeof(double);
constexpr char kStateVersion = 1;

uint32_t MagnitudeOf(float value) { return std::bit_cast<uint32_t>(value) & kMagnitudeBits; }

// What follows from the number of elements.
struct Layout {
  size_t n = 0;
  size_t k = 0;
  bool bitmap = true;

  size_t places_bytes() const { return bitmap ? (n + 7) / 8 : k * kIndexBytes; }
  Bytes bytes() const { return Bytes(static_cast<int64_t>(places_bytes() + k * sizeof(float))); }
};

Layout LayoutOf(double ratio, const Shape& shape) {
  Layout layout;
  layout.n = static_cast<size_t>(shape.elements());
  const double wanted = std::ceil(ratio * static_cast<double>(layout.n));
  layout.k = std::clamp<size_t>(static_cast<size_t>(wanted), 1, layout.n);
  layout.bitmap = layout.n > std::numeric_limits<uint32_t>::max() ||
                  (layout.n + 7) / 8 <= layout.k * kIndexBytes;
  return layout;
}

// Tells one element after the other, in ascending order, whether it is kept.
class Keeper {
 public:
  explicit Keeper(const TopkCut& cut) : magnitude_(cut.magnitude), equal_(cut.equal) {}

  bool Keeps(float value) {
    const uint32_t magnitude = MagnitudeOf(value);
    if (magnitude != magnitude_) return magnitude > magnitude_;
    if (equal_ == 0) return false;
    --equal_;
    return true;
  }

 private:
  const uint32_t magnitude_;
  size_t equal_;
};

// Where kept values go.
class Values {
 public:
  explicit Values(std::byte* to) : to_(to) {}

  // Sends `value`, and keeps nothing of it back.
  void Send(float& value) {
    StoreFloat(std::exchange(value, 0.0f), to_);
    to_ += sizeof(float);
  }

 private:
  std::byte* to_;
};

void WriteBitmap(const TopkCut& cut, size_t n, float* y, std::byte* places, Values values) {
  Keeper keeper(cut);
  for (size_t base = 0; base < n; base += 8) {
    const size_t count = std::min<size_t>(8, n - base);
    uint32_t bits = 0;
    for (size_t j = 0; j < count; ++j) {
      if (!keeper.Keeps(y[base + j])) continue;
      bits |= 1u << j;
      values.Send(y[base + j]);
    }
    *places++ = static_cast<std::byte>(bits);
  }
}

void WriteIndices(const TopkCut& cut, size_t n, float* y, std::byte* places, Values values) {
  Keeper keeper(cut);
  for (size_t e = 0; e < n; ++e) {
    if (!keeper.Keeps(y[e])) continue;
    StoreInt32(static_cast<int32_t>(static_cast<uint32_t>(e)), places);
    places += kIndexBytes;
    values.Send(y[e]);
  }
}

class TopkEncoder final : public Encoder {
 public:
  TopkEncoder(double ratio, const CodecKernels& kernels) : ratio_(ratio), kernels_(kernels) {}

  absl::Status Encode(const TensorView& x, Sequence, bool restart,
                      absl::Span<std::byte> payload) override {
    const Layout layout = LayoutOf(ratio_, x.shape);
    RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(x, payload.size(), layout.bytes()));
    const size_t n = layout.n;
    if (kernels_.max_abs_bits(x.f32(), n) >= kInfinityBits) return NonFiniteError(x.f32(), n);
    if (restart || residual_.size() != n) residual_.assign(n, 0.0f);
    constexpr float kMost = std::numeric_limits<float>::max();
    float* y = residual_.data();
    for (size_t e = 0; e < n; ++e) y[e] = std::clamp(y[e] + x.f32()[e], -kMost, kMost);
    const TopkCut cut = FindTopkCut(y, n, layout.k);
    const auto write = layout.bitmap ? WriteBitmap : WriteIndices;
    write(cut, n, y, payload.data(), Values(payload.data() + layout.places_bytes()));
    return absl::OkStatus();
  }

  std::string SaveState() const override;
  absl::Status RestoreState(absl::string_view state) override;

 private:
  const double ratio_;
  const CodecKernels& kernels_;
  std::vector<float> residual_;  // empty before the first micro-batch
};

// 'K', version, two zeros, n as 64 bits, n floats, the ratio: of another ratio it is refused.
std::string TopkEncoder::SaveState() const {
  if (residual_.empty()) return "";
  const size_t n = residual_.size();
  std::string state = {'K', kStateVersion, 0, 0};
  state.resize(kStateHeaderBytes + n * sizeof(float) + kStateTailBytes);
  auto* bytes = reinterpret_cast<std::byte*>(state.data());
  const auto ratio = std::bit_cast<uint64_t>(ratio_);
  std::byte* tail = bytes + state.size() - kStateTailBytes;
  for (size_t i = 0; i < 8; ++i) {
    bytes[4 + i] = static_cast<std::byte>(uint64_t{n} >> (8 * i));
    tail[i] = static_cast<std::byte>(ratio >> (8 * i));
  }
  for (size_t e = 0; e < n; ++e) StoreFloat(residual_[e], bytes + kStateHeaderBytes + 4 * e);
  return state;
}

absl::Status TopkEncoder::RestoreState(absl::string_view state) {
  if (state.empty()) {
    residual_.clear();
    return absl::OkStatus();
  }
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrCat("topk:", ratio_, ": not a state of this encoder (", state.size(), " bytes)"));
  if (state.size() <= kStateHeaderBytes + kStateTailBytes || state[0] != 'K' ||
      state[1] != kStateVersion || state[2] != 0 || state[3] != 0) {
    return refused;
  }
  const size_t value_bytes = state.size() - kStateHeaderBytes - kStateTailBytes;
  uint64_t n = 0, ratio = 0;
  for (size_t i = 0; i < 8; ++i) {
    n |= uint64_t{static_cast<uint8_t>(state[4 + i])} << (8 * i);
    ratio |= uint64_t{static_cast<uint8_t>(state[state.size() - kStateTailBytes + i])} << (8 * i);
  }
  if (ratio != std::bit_cast<uint64_t>(ratio_) || value_bytes % sizeof(float) != 0 ||
      n != value_bytes / sizeof(float)) {
    return refused;
  }
  std::vector<float> residual(n);
  const auto* values = reinterpret_cast<const std::byte*>(state.data() + kStateHeaderBytes);
  for (size_t e = 0; e < n; ++e) {
    residual[e] = LoadFloat(values + sizeof(float) * e);
    if (!std::isfinite(residual[e])) return refused;
  }
  residual_ = std::move(residual);
  return absl::OkStatus();
}

class TopkCodec final : public Codec {
 public:
  TopkCodec(double ratio, const CodecKernels& kernels) : ratio_(ratio), kernels_(kernels) {}

  std::string name() const override { return absl::StrCat("topk:", ratio_); }
  Bytes EncodedBytes(const Shape& shape) const override { return LayoutOf(ratio_, shape).bytes(); }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey&) const override {
    return std::make_unique<TopkEncoder>(ratio_, kernels_);
  }

  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override {
    const Layout layout = LayoutOf(ratio_, out.shape);
    RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(payload.size(), layout.bytes(), out));
    const std::byte* places = payload.data();
    const std::byte* values = places + layout.places_bytes();
    std::fill_n(out.f32(), layout.n, 0.0f);
    return layout.bitmap ? ReadBitmap(layout, places, values, out.f32())
                         : ReadIndices(layout, places, values, out.f32());
  }

 private:
  absl::Status Refused(absl::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(name(), ": ", why));
  }

  absl::Status ReadValue(const std::byte* from, float& to) const {
    to = LoadFloat(from);
    if (MagnitudeOf(to) < kInfinityBits) return absl::OkStatus();
    return Refused("a value is NaN or infinite");
  }

  absl::Status ReadBitmap(const Layout& layout, const std::byte* places, const std::byte* values,
                          float* out) const {
    size_t found = 0;
    for (size_t base = 0; base < layout.n; base += 8) {
      for (auto bits = std::to_integer<uint32_t>(*places++); bits != 0; bits &= bits - 1) {
        const size_t e = base + static_cast<size_t>(std::countr_zero(bits));
        if (e >= layout.n || found == layout.k) return Refused("the bitmap has a bit too many");
        RUNNEL_RETURN_IF_ERROR(ReadValue(values + sizeof(float) * found++, out[e]));
      }
    }
    return found == layout.k ? absl::OkStatus() : Refused("the bitmap has a bit too few");
  }

  absl::Status ReadIndices(const Layout& layout, const std::byte* places, const std::byte* values,
                           float* out) const {
    size_t next = 0;  // the least index that may follow
    for (size_t i = 0; i < layout.k; ++i) {
      const size_t e = static_cast<uint32_t>(LoadInt32(places + kIndexBytes * i));
      if (e < next || e >= layout.n) {
        return Refused(absl::StrCat("index ", e, " is not in ", next, "..", layout.n - 1));
      }
      RUNNEL_RETURN_IF_ERROR(ReadValue(values + sizeof(float) * i, out[e]));
      next = e + 1;
    }
    return absl::OkStatus();
  }

  const double ratio_;
  const CodecKernels& kernels_;
};

}  // namespace

// From the top digit of the magnitude's 31 bits to the lowest: counts the values of the digit among
// the elements that agree with the cut in the digits above, and finds the one in which the k-th is.
TopkCut FindTopkCut(const float* x, size_t n, size_t k) {
  struct Digit {
    int shift;
    int bits;
  };
  constexpr Digit kDigits[] = {{20, 11}, {10, 10}, {0, 10}};
  TopkCut cut;
  cut.equal = k;
  for (const auto& [shift, bits] : kDigits) {
    size_t counts[size_t{1} << 11] = {};
    const uint32_t mask = (1u << bits) - 1;
    const int above = shift + bits;
    const uint32_t prefix = cut.magnitude >> above;  // at 31: 0, as of every magnitude
    for (size_t e = 0; e < n; ++e) {
      const uint32_t magnitude = MagnitudeOf(x[e]);
      if (magnitude >> above == prefix) ++counts[(magnitude >> shift) & mask];
    }
    uint32_t digit = mask;
    while (counts[digit] < cut.equal) cut.equal -= counts[digit--];
    cut.magnitude |= digit << shift;
  }
  return cut;
}

double TopkBits(double ratio) { return 32 * ratio + std::min(1.0, 32 * ratio); }

double TopkNormalError(double ratio) {
  // |value| > t with probability `ratio`.
  double low = 0, high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > ratio ? low : high) = middle;
  }
  const double t = (low + high) / 2;
  const double density = std::exp(-t * t / 2) / std::sqrt(2 * std::numbers::pi);
  return std::max(0.0, 1 - ratio - 2 * t * density);
}

std::unique_ptr<const Codec> MakeTopkCodec(double ratio, const CodecKernels& kernels) {
  return std::make_unique<TopkCodec>(ratio, kernels);
}

}  // namespace runnel
