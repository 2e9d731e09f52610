#include "compress/ans/rans.h"

#include <algorithm>
#include <numeric>

namespace runnel {
namespace {

constexpr uint32_t kWhole = uint32_t{1} << kShareBits;
constexpr size_t kStates = 4;
// States lie in [kLeast, 2^32) and are filled up with words of 16 bits.
constexpr uint32_t kLeast = uint32_t{1} << 16;
constexpr size_t kWordBits = 16, kWordBytes = 2;

// Of each symbol, the shares of those before it.
std::array<uint32_t, 256> Begins(const SymbolShares& shares) {
  std::array<uint32_t, 256> begins;
  std::exclusive_scan(shares.begin(), shares.end(), begins.begin(), uint32_t{0});
  return begins;
}

void PutHalf(uint32_t half, std::byte* to) {
  to[0] = static_cast<std::byte>(half & 0xFF);
  to[1] = static_cast<std::byte>(half >> 8 & 0xFF);
}

uint32_t HalfAt(const std::byte* from) {
  return std::to_integer<uint32_t>(from[0]) | std::to_integer<uint32_t>(from[1]) << 8;
}

}  // namespace

SymbolShares SharesOf(absl::Span<const uint8_t> symbols) {
  std::array<uint64_t, 256> counts = {};
  for (const uint8_t symbol : symbols) ++counts[symbol];
  SymbolShares shares = {};
  int64_t missing = kWhole;
  const uint64_t n = symbols.size();
  for (size_t s = 0; s < shares.size(); ++s) {
    if (counts[s] == 0) continue;
    const uint64_t nearest = (counts[s] * kWhole + n / 2) / n;
    shares[s] = static_cast<uint16_t>(std::max<uint64_t>(1, nearest));
    missing -= shares[s];
  }
  // One at a time from or to the largest, for which it makes the least difference.
  for (; missing != 0; missing += missing < 0 ? 1 : -1) {
    uint16_t& largest = *std::max_element(shares.begin(), shares.end());
    largest = static_cast<uint16_t>(missing < 0 ? largest - 1 : largest + 1);
  }
  return shares;
}

void RansEncode(absl::Span<const uint8_t> symbols, const SymbolShares& shares,
                std::vector<std::byte>& stream) {
  const std::array<uint32_t, 256> begins = Begins(shares);
  std::array<uint32_t, kStates> states;
  states.fill(kLeast);
  // From the last symbol to the first, and written from the end: the reader goes forwards.
  stream.resize(kWordBytes * (symbols.size() + 2 * kStates));
  std::byte* at = stream.data() + stream.size();
  for (size_t i = symbols.size(); i-- > 0;) {
    uint32_t& state = states[i % kStates];
    const uint32_t share = shares[symbols[i]];
    const uint64_t most = (uint64_t{kLeast >> kShareBits} << kWordBits) * share;
    if (state >= most) {
      at -= kWordBytes;
      PutHalf(state, at);
      state >>= kWordBits;
    }
    state = (state / share << kShareBits) + state % share + begins[symbols[i]];
  }
  for (size_t k = kStates; k-- > 0;) {
    at -= 2 * kWordBytes;
    PutHalf(states[k], at);
    PutHalf(states[k] >> kWordBits, at + kWordBytes);
  }
  stream.erase(stream.begin(), stream.begin() + (at - stream.data()));
}

bool RansDecode(absl::Span<const std::byte> stream, const SymbolShares& shares,
                absl::Span<uint8_t> symbols) {
  if (std::accumulate(shares.begin(), shares.end(), uint64_t{0}) != kWhole) return false;
  if (stream.size() < 2 * kWordBytes * kStates || stream.size() % kWordBytes != 0) return false;
  // Of each number below kWhole the symbol in whose share it lies.
  std::array<uint8_t, kWhole> owners;
  auto owner = owners.begin();
  for (size_t s = 0; s < shares.size(); ++s)
    owner = std::fill_n(owner, shares[s], static_cast<uint8_t>(s));
  const std::array<uint32_t, 256> begins = Begins(shares);
  const std::byte* at = stream.data();
  const std::byte* const end = at + stream.size();
  std::array<uint32_t, kStates> states;
  for (uint32_t& state : states) {
    state = HalfAt(at) | HalfAt(at + kWordBytes) << kWordBits;
    at += 2 * kWordBytes;
    if (state < kLeast) return false;
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    uint32_t& state = states[i % kStates];
    const uint32_t place = state & (kWhole - 1);
    const uint8_t symbol = owners[place];
    symbols[i] = symbol;
    state = shares[symbol] * (state >> kShareBits) + place - begins[symbol];
    if (state >= kLeast) continue;
    if (at == end) return false;
    state = state << kWordBits | HalfAt(at);
    at += kWordBytes;
  }
  return at == end &&
         std::all_of(states.begin(), states.end(), [](uint32_t state) { return state == kLeast; });
}

}  // namespace runnel
