#include "compress/sample_memory.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "compress/codec_checks.h"
#include "compress/kernels/tile_kernels.h"

namespace runnel {
namespace {

constexpr absl::string_view kTag("S\x01\0\0", 4);
constexpr size_t kRowHeaderBytes = 8;
// A row's head, its place in the table, and the allocator's part.
constexpr int64_t kRowOverheadBytes = 112;

float FromBFloat16(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

// To the nearest, ties to even. |value| <= kMaxTileMagnitude.
uint16_t ToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// Four sums side by side, so that multiplications need not wait for one another.
uint32_t MarkOfValues(absl::Span<const uint16_t> values) {
  constexpr size_t kLanes = 4, kStride = 2 * kLanes;
  constexpr uint32_t kFactor = 0x9E3779B1u;
  uint32_t lanes[kLanes] = {1, 2, 3, 4};
  size_t e = 0;
  for (; e + kStride <= values.size(); e += kStride) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint32_t word = values[e + 2 * lane] | uint32_t{values[e + 2 * lane + 1]} << 16;
      lanes[lane] = std::rotl((lanes[lane] ^ word) * kFactor, 15);
    }
  }
  auto mark = static_cast<uint32_t>(values.size());
  for (const uint32_t lane : lanes) mark = std::rotl((mark ^ lane) * kFactor, 15);
  for (; e < values.size(); ++e) mark = std::rotl((mark ^ values[e]) * kFactor, 15);
  return mark == SampleMemory::kNothing ? 1 : mark;
}

uint32_t WordAt(absl::string_view state, size_t at) {
  return static_cast<uint32_t>(LoadInt32(reinterpret_cast<const std::byte*>(state.data()) + at));
}

void PutWord(uint32_t word, std::string& to) {
  for (int shift = 0; shift < 32; shift += 8) to.push_back(static_cast<char>(word >> shift));
}

// At a barrier a stage copies all that is kept: at the speed of memory where its bytes are those of
// the state.
void PutValues(absl::Span<const uint16_t> values, std::string& to) {
  if constexpr (std::endian::native == std::endian::little) {
    to.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(uint16_t));
    return;
  }
  for (const uint16_t value : values) {
    to.push_back(static_cast<char>(value));
    to.push_back(static_cast<char>(value >> 8));
  }
}

}  // namespace

uint32_t SampleMemory::MarkOf(int64_t sample, size_t elements) const {
  const auto place = places_.find(sample);
  if (place == places_.end()) return kNothing;
  const Row& row = rows_[place->second];
  return row.values.size() != elements ? kNothing : row.mark;
}

void SampleMemory::Subtract(int64_t sample, absl::Span<float> values) const {
  const std::vector<uint16_t>& kept = rows_[places_.at(sample)].values;
  for (size_t e = 0; e < values.size(); ++e) values[e] -= FromBFloat16(kept[e]);
}

void SampleMemory::AddTo(int64_t sample, absl::Span<float> values) {
  const auto [place, is_new] = places_.try_emplace(sample, rows_.size());
  if (is_new) rows_.push_back({.sample = sample});
  Row& row = rows_[place->second];
  if (row.values.size() != values.size()) row.values.assign(values.size(), 0);
  for (size_t e = 0; e < values.size(); ++e) {
    values[e] =
        std::clamp(values[e] + FromBFloat16(row.values[e]), -kMaxTileMagnitude, kMaxTileMagnitude);
    row.values[e] = ToBFloat16(values[e]);
  }
  row.mark = MarkOfValues(row.values);
}

void SampleMemory::Forget(int64_t sample) {
  if (const auto place = places_.find(sample); place != places_.end())
    rows_[place->second].values.clear();
}

std::string SampleMemory::Save() const {
  std::string state;
  size_t bytes = kTag.size();
  for (const Row& row : rows_) bytes += kRowHeaderBytes + 2 * row.values.size();
  for (const Row& row : rows_) {
    if (row.values.empty()) continue;
    if (state.empty()) {
      state.reserve(bytes);
      state.append(kTag.data(), kTag.size());
    }
    PutWord(static_cast<uint32_t>(row.sample), state);
    PutWord(static_cast<uint32_t>(row.values.size()), state);
    PutValues(row.values, state);
  }
  return state;
}

absl::Status SampleMemory::Restore(absl::string_view codec, absl::string_view state) {
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrCat(codec, ": not a state of this encoder (", state.size(), " bytes)"));
  std::vector<Row> rows;
  std::unordered_map<int64_t, size_t> places;
  if (!state.empty() && (!absl::StartsWith(state, kTag) || state.size() == kTag.size()))
    return refused;
  size_t at = std::min(state.size(), kTag.size());
  while (at < state.size()) {
    if (state.size() - at < kRowHeaderBytes) return refused;
    Row row{.sample = WordAt(state, at)};
    const size_t elements = WordAt(state, at + 4);
    at += kRowHeaderBytes;
    const bool is_first = places.try_emplace(row.sample, rows.size()).second;
    if (!is_first || elements == 0 || (state.size() - at) / 2 < elements) return refused;
    row.values.resize(elements);
    for (uint16_t& value : row.values) {
      value = static_cast<uint16_t>(static_cast<unsigned char>(state[at]) |
                                    static_cast<unsigned char>(state[at + 1]) << 8);
      at += 2;
      if (!(std::abs(FromBFloat16(value)) <= kMaxTileMagnitude)) return refused;
    }
    row.mark = MarkOfValues(row.values);
    rows.push_back(std::move(row));
  }
  rows_ = std::move(rows);
  places_ = std::move(places);
  return absl::OkStatus();
}

int64_t SampleMemory::Bytes(int64_t samples, int64_t elements) {
  if (elements > kMostBytes / 2 - kRowOverheadBytes) return kMostBytes;
  const int64_t row = 2 * elements + kRowOverheadBytes;
  return samples > kMostBytes / row ? kMostBytes : samples * row;
}

}  // namespace runnel
