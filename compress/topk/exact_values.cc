// topk: which elements, then their values in FP32, both in ascending order of the index. Which: a
// bitmap (element 8i + j is bit j of byte i; unused bits are 0), or indices of 32 bits where these
// are fewer bytes.

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/topk/kept_values.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kIndexBytes = sizeof(uint32_t);

bool HasBitmap(size_t n, size_t k) {
  return n > std::numeric_limits<uint32_t>::max() || (n + 7) / 8 <= k * kIndexBytes;
}

size_t PlacesBytes(size_t n, size_t k) { return HasBitmap(n, k) ? (n + 7) / 8 : k * kIndexBytes; }

int64_t ExactBytes(size_t n, size_t k) {
  return static_cast<int64_t>(PlacesBytes(n, k) + k * sizeof(float));
}

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

void WriteExact(const TopkCut& cut, size_t n, size_t k, float* y, std::byte* payload) {
  const auto write = HasBitmap(n, k) ? WriteBitmap : WriteIndices;
  write(cut, n, y, payload, Values(payload + PlacesBytes(n, k)));
}

absl::Status ReadValue(const std::byte* from, float& to) {
  to = LoadFloat(from);
  if (MagnitudeOf(to) < kInfinityBits) return absl::OkStatus();
  return absl::InvalidArgumentError("a value is NaN or infinite");
}

absl::Status ReadBitmap(const std::byte* places, const std::byte* values, size_t n, size_t k,
                        float* out) {
  size_t found = 0;
  for (size_t base = 0; base < n; base += 8) {
    for (auto bits = std::to_integer<uint32_t>(*places++); bits != 0; bits &= bits - 1) {
      const size_t e = base + static_cast<size_t>(std::countr_zero(bits));
      if (e >= n || found == k) return absl::InvalidArgumentError("the bitmap has a bit too many");
      RUNNEL_RETURN_IF_ERROR(ReadValue(values + sizeof(float) * found++, out[e]));
    }
  }
  return found == k ? absl::OkStatus() : absl::InvalidArgumentError("the bitmap has a bit too few");
}

absl::Status ReadIndices(const std::byte* places, const std::byte* values, size_t n, size_t k,
                         float* out) {
  size_t next = 0;  // the least index that may follow
  for (size_t i = 0; i < k; ++i) {
    const size_t e = static_cast<uint32_t>(LoadInt32(places + kIndexBytes * i));
    if (e < next || e >= n) {
      return absl::InvalidArgumentError(
          absl::StrCat("index ", e, " is not in ", next, "..", n - 1));
    }
    RUNNEL_RETURN_IF_ERROR(ReadValue(values + sizeof(float) * i, out[e]));
    next = e + 1;
  }
  return absl::OkStatus();
}

absl::Status ReadExact(const std::byte* payload, size_t n, size_t k, float* out) {
  std::fill_n(out, n, 0.0f);
  const auto read = HasBitmap(n, k) ? ReadBitmap : ReadIndices;
  return read(payload, payload + PlacesBytes(n, k), n, k, out);
}

}  // namespace

const KeptValues kExactValues = {"topk", 0, ExactBytes, WriteExact, ReadExact};

}  // namespace runnel
