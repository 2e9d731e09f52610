#include "compress/ans/tile_ans.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compress/ans/rans.h"
#include "compress/codec_checks.h"
#include "compress/kernels/tile_kernels.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr size_t kSizeBytes = 4;
constexpr uint32_t kCodedForm = uint32_t{1} << 31;
constexpr size_t kRotationKeyBytes = 8;
constexpr size_t kShareBytes = 2;

// Where the parts of a tile codec's payload lie.
struct TileParts {
  size_t bits;
  size_t key_bytes;
  size_t tiles = 0;
  size_t codes = 0;  // of all tiles, padding included

  TileParts(const TileOptions& options, const Shape& shape)
      : bits(static_cast<size_t>(options.bits)), key_bytes(options.rotate ? kRotationKeyBytes : 0) {
    const auto n = static_cast<size_t>(shape.elements());
    tiles = (n + kTileElements - 1) / kTileElements;
    codes = n / kTileElements * kTileElements;
    if (codes < n) codes += TileWidth(n - codes);
  }
  size_t head_bytes() const { return key_bytes + tiles * kTileHeaderBytes; }
  size_t share_bytes() const { return kShareBytes << bits; }

  // Calls visit(header, planes, first code, width) for each tile in `payload`.
  template <typename Byte, typename Visit>
  void ForEachTile(Byte* payload, Visit visit) const {
    Byte* tile = payload + key_bytes;
    for (size_t first = 0; first < codes; first += kTileElements) {
      const size_t width = std::min(kTileElements, codes - first);
      visit(tile, tile + kTileHeaderBytes, first, width);
      tile += TileBytes(width, static_cast<int>(bits));
    }
  }
};

// Bit j of a byte as the lowest bit of byte j.
constexpr std::array<uint64_t, 256> MakeSpread() {
  std::array<uint64_t, 256> spread = {};
  for (size_t byte = 0; byte < 256; ++byte) {
    for (size_t j = 0; j < 8; ++j) spread[byte] |= uint64_t{byte >> j & 1} << (8 * j);
  }
  return spread;
}
constexpr std::array<uint64_t, 256> kSpread = MakeSpread();
constexpr uint64_t kLowestBits = 0x0101010101010101u;
constexpr uint64_t kGather = 0x0102040810204080u;

// Eight codes from a byte of each plane, and back.
void CodesOfPlanes(const std::byte* planes, size_t width, size_t bits, uint8_t* codes) {
  const size_t plane_bytes = width / 8;
  for (size_t i = 0; i < plane_bytes; ++i) {
    uint64_t eight = 0;
    for (size_t plane = 0; plane < bits; ++plane)
      eight = eight << 1 | kSpread[std::to_integer<size_t>(planes[plane * plane_bytes + i])];
    std::memcpy(codes + 8 * i, &eight, 8);
  }
}

void PlanesOfCodes(const uint8_t* codes, size_t width, size_t bits, std::byte* planes) {
  const size_t plane_bytes = width / 8;
  for (size_t i = 0; i < plane_bytes; ++i) {
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * i, 8);
    for (size_t plane = 0; plane < bits; ++plane) {
      const uint64_t lowest = eight >> (bits - 1 - plane) & kLowestBits;
      planes[plane * plane_bytes + i] = static_cast<std::byte>(lowest * kGather >> 56);
    }
  }
}

class TileAnsEncoder final : public Encoder {
 public:
  TileAnsEncoder(const TileOptions& options, std::shared_ptr<const Codec> tiles,
                 const EncoderKey& key)
      : options_(options), tiles_(std::move(tiles)), encoder_(tiles_->NewEncoder(key)) {}

  absl::Status Encode(const TensorView& x, Sequence sequence, bool restart,
                      absl::Span<std::byte> payload) override;
  size_t written() const override { return written_; }
  std::string SaveState() const override { return ""; }
  absl::Status RestoreState(absl::string_view state) override { return CheckNoState(state); }

 private:
  // Writes the coded form behind the size. 0: it is no shorter than plain_, and nothing was written.
  size_t WriteCoded(const TileParts& parts, absl::Span<std::byte> payload);

  const TileOptions options_;
  const std::shared_ptr<const Codec> tiles_;
  const std::unique_ptr<Encoder> encoder_;
  size_t written_ = 0;
  std::vector<std::byte> plain_, stream_;
  std::vector<uint8_t> codes_;
};

size_t TileAnsEncoder::WriteCoded(const TileParts& parts, absl::Span<std::byte> payload) {
  codes_.resize(parts.codes);
  parts.ForEachTile(plain_.data(),
                    [&](const std::byte*, const std::byte* planes, size_t first, size_t width) {
                      CodesOfPlanes(planes, width, parts.bits, codes_.data() + first);
                    });
  const SymbolShares shares = SharesOf(codes_);
  RansEncode(codes_, shares, stream_);
  const size_t bytes = kSizeBytes + parts.head_bytes() + parts.share_bytes() + stream_.size();
  if (bytes >= kSizeBytes + plain_.size()) return 0;
  std::byte* to = payload.data() + kSizeBytes;
  to = std::copy_n(plain_.data(), parts.key_bytes, to);
  parts.ForEachTile(plain_.data(),
                    [&to](const std::byte* header, const std::byte*, size_t, size_t) {
                      to = std::copy_n(header, kTileHeaderBytes, to);
                    });
  for (size_t code = 0; code >> parts.bits == 0; ++code) {
    *to++ = static_cast<std::byte>(shares[code] & 0xFF);
    *to++ = static_cast<std::byte>(shares[code] >> 8);
  }
  std::copy(stream_.begin(), stream_.end(), to);
  return bytes;
}

absl::Status TileAnsEncoder::Encode(const TensorView& x, Sequence sequence, bool restart,
                                    absl::Span<std::byte> payload) {
  const int64_t plain_bytes = tiles_->EncodedBytes(x.shape).value();
  RUNNEL_RETURN_IF_ERROR(CheckEncodeArguments(
      x, payload.size(), Bytes(static_cast<int64_t>(kSizeBytes) + plain_bytes)));
  plain_.resize(static_cast<size_t>(plain_bytes));
  RUNNEL_RETURN_IF_ERROR(encoder_->Encode(x, sequence, restart, absl::MakeSpan(plain_)));
  written_ = WriteCoded(TileParts(options_, x.shape), payload);
  const bool is_coded = written_ > 0;
  if (!is_coded) {
    std::copy(plain_.begin(), plain_.end(), payload.begin() + kSizeBytes);
    written_ = payload.size();
  }
  StoreInt32(static_cast<int32_t>(static_cast<uint32_t>(written_) | (is_coded ? kCodedForm : 0)),
             payload.data());
  std::fill(payload.begin() + static_cast<std::ptrdiff_t>(written_), payload.end(), std::byte{0});
  return absl::OkStatus();
}

class TileAnsCodec final : public Codec {
 public:
  TileAnsCodec(const TileOptions& options, const CodecKernels& kernels)
      : options_(options), tiles_(MakeTileCodec(options, kernels)) {}

  std::string name() const override {
    std::string name = tiles_->name();
    return name.insert(name.find(':'), "_ans");
  }
  bool varies() const override { return true; }
  Bytes EncodedBytes(const Shape& shape) const override {
    return Bytes(static_cast<int64_t>(kSizeBytes) + tiles_->EncodedBytes(shape).value());
  }
  std::unique_ptr<Encoder> NewEncoder(const EncoderKey& key) const override {
    return std::make_unique<TileAnsEncoder>(options_, tiles_, key);
  }
  absl::Status Decode(absl::Span<const std::byte> payload,
                      const MutableTensorView& out) const override;

 private:
  absl::Status Impossible(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(name(), ": ", what));
  }
  // Makes `plain` the tile codec's payload of the coded form.
  absl::Status ReadCoded(absl::Span<const std::byte> coded, const Shape& shape,
                         std::vector<std::byte>& plain) const;

  const TileOptions options_;
  const std::shared_ptr<const Codec> tiles_;
};

absl::Status TileAnsCodec::ReadCoded(absl::Span<const std::byte> coded, const Shape& shape,
                                     std::vector<std::byte>& plain) const {
  const TileParts parts(options_, shape);
  if (coded.size() < parts.head_bytes() + parts.share_bytes())
    return Impossible("ends within its shares");
  const std::byte* at = coded.data() + parts.head_bytes();
  SymbolShares shares = {};
  for (size_t code = 0; code >> parts.bits == 0; ++code) {
    shares[code] = static_cast<uint16_t>(std::to_integer<uint32_t>(at[0]) |
                                         std::to_integer<uint32_t>(at[1]) << 8);
    at += kShareBytes;
  }
  thread_local std::vector<uint8_t> codes;
  codes.resize(parts.codes);
  if (!RansDecode(coded.subspan(parts.head_bytes() + parts.share_bytes()), shares,
                  absl::MakeSpan(codes))) {
    return Impossible("its codes are no stream of their shares");
  }
  plain.resize(static_cast<size_t>(tiles_->EncodedBytes(shape).value()));
  const std::byte* head = coded.data();
  std::copy_n(head, parts.key_bytes, plain.data());
  head += parts.key_bytes;
  parts.ForEachTile(plain.data(),
                    [&](std::byte* header, std::byte* planes, size_t first, size_t width) {
                      std::copy_n(head, kTileHeaderBytes, header);
                      head += kTileHeaderBytes;
                      PlanesOfCodes(codes.data() + first, width, parts.bits, planes);
                    });
  return absl::OkStatus();
}

absl::Status TileAnsCodec::Decode(absl::Span<const std::byte> payload,
                                  const MutableTensorView& out) const {
  const auto most = static_cast<size_t>(EncodedBytes(out.shape).value());
  RUNNEL_RETURN_IF_ERROR(CheckDecodeArguments(most, EncodedBytes(out.shape), out));
  if (payload.size() < kSizeBytes) return Impossible("ends within its size");
  const auto head = static_cast<uint32_t>(LoadInt32(payload.data()));
  const size_t bytes = head & ~kCodedForm;
  const bool is_whole = payload.size() == most;
  if (bytes < kSizeBytes || bytes > most || (!is_whole && payload.size() != bytes)) {
    return Impossible(absl::StrCat("says that it has ", bytes, " bytes, and has ", payload.size()));
  }
  const auto zeros = payload.subspan(bytes);
  if (std::any_of(zeros.begin(), zeros.end(), [](std::byte byte) { return byte != std::byte{0}; }))
    return Impossible("bytes behind it are not 0");
  const absl::Span<const std::byte> rest = payload.subspan(kSizeBytes, bytes - kSizeBytes);
  if ((head & kCodedForm) == 0) return tiles_->Decode(rest, out);
  thread_local std::vector<std::byte> plain;
  RUNNEL_RETURN_IF_ERROR(ReadCoded(rest, out.shape, plain));
  return tiles_->Decode(plain, out);
}

}  // namespace

std::unique_ptr<const Codec> MakeTileAnsCodec(const TileOptions& options,
                                              const CodecKernels& kernels) {
  return std::make_unique<TileAnsCodec>(options, kernels);
}

}  // namespace runnel
