#pragma once

// Entropy coding of bytes: asymmetric numeral systems in their range form (rANS; Duda, "Asymmetric
// numeral systems", 2013). One table of shares for all symbols; four states in turn, so that a symbol
// need not wait for the one before.
//
// Coding takes the entropy of the symbols by their shares, and at most 2^-14 of a share's rounding and
// 4 x 4 bytes of states more. Pure functions; any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace runnel {

inline constexpr int kShareBits = 14;
// Shares of symbols 0, 1, ...: their sum is 2^kShareBits.
using SymbolShares = std::array<uint16_t, 256>;

// Of at least one symbol. No symbol that occurs has the share 0.
SymbolShares SharesOf(absl::Span<const uint8_t> symbols);

// What RansDecode reads, in place of `stream`. Each symbol has a share above 0.
void RansEncode(absl::Span<const uint8_t> symbols, const SymbolShares& shares,
                std::vector<std::byte>& stream);

// False: the shares have another sum, or the stream is not one of RansEncode for so many symbols,
// down to its last byte; `symbols` are then unspecified.
bool RansDecode(absl::Span<const std::byte> stream, const SymbolShares& shares,
                absl::Span<uint8_t> symbols);

}  // namespace runnel
