#include "compress/topk/place_coder.h"

#include <algorithm>
#include <bit>

namespace runnel {
namespace {

constexpr size_t kWordBytes = 4;
constexpr int kFractionBits = 24;  // of a number of bits
constexpr uint64_t kOne = uint64_t{1} << kFractionBits;
// A chosen element's part is cut to a multiple of 2^-16 of the range: 2.3e-5 bits at most.
constexpr uint64_t kCutOff = 400;

// log2(65536 / share) in units of 2^-24, and less than two of them more. 1 <= share < 65536.
uint64_t CodeLength(uint64_t share) {
  const int whole = std::bit_width(share) - 1;
  uint64_t log2 = static_cast<uint64_t>(whole) << kFractionBits;
  uint64_t mantissa = share << (31 - whole);  // 1..2 in units of 2^-31
  for (int bit = kFractionBits - 1; bit >= 0; --bit) {
    mantissa = mantissa * mantissa >> 31;
    if (mantissa >> 32 == 0) continue;
    mantissa >>= 1;
    log2 |= uint64_t{1} << bit;
  }
  return 16 * kOne - log2 + 1;
}

}  // namespace

PlaceModel::PlaceModel(size_t n, size_t k)
    : share_(std::clamp<uint64_t>(((uint64_t{k} << 16) + n / 2) / n, 1, 65535)) {}

size_t PlaceBytes(size_t n, size_t k) {
  const uint64_t share = PlaceModel(n, k).share();
  const uint64_t length = k * (CodeLength(share) + kCutOff) + (n - k) * CodeLength(65536 - share);
  return ((length >> (kFractionBits + 5)) + 1) * kWordBytes;
}

PlaceWriter::PlaceWriter(size_t n, size_t k, std::byte* out)
    : model_(n, k), begin_(out), end_(out + PlaceBytes(n, k)), at_(out) {}

void PlaceWriter::Carry() {
  std::byte* last = at_;
  do {
    --last;
    *last = static_cast<std::byte>(std::to_integer<uint32_t>(*last) + 1);
  } while (*last == std::byte{0} && last != begin_);
}

void PlaceWriter::Put(uint32_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) *at_++ = static_cast<std::byte>(word >> shift);
}

void PlaceWriter::Shift() {
  Put(static_cast<uint32_t>(low_ >> 32));
  low_ <<= 32;
  range_ <<= 32;
}

// Of the numbers in the range, the first whose lower half is 0.
void PlaceWriter::Finish() {
  const uint64_t up = low_ + 0xFFFFFFFFu;
  if (up < low_) Carry();
  Put(static_cast<uint32_t>(up >> 32));
  std::fill(at_, end_, std::byte{0});
}

PlaceReader::PlaceReader(size_t n, size_t k, const std::byte* in)
    : model_(n, k), at_(in), end_(in + PlaceBytes(n, k)) {
  code_ = uint64_t{Take()} << 32;
  code_ |= Take();
}

uint32_t PlaceReader::Take() {
  uint32_t word = 0;
  if (at_ == end_) return word;
  for (size_t i = 0; i < kWordBytes; ++i) word = word << 8 | std::to_integer<uint32_t>(*at_++);
  return word;
}

void PlaceReader::Shift() {
  code_ = code_ << 32 | Take();
  range_ <<= 32;
}

// The writer's last word has its numbers below 2^32 behind it: the reader holds the difference.
bool PlaceReader::IsAtEnd() const {
  return code_ < range_ && code_ >> 32 == 0 &&
         std::all_of(at_, end_, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace runnel
