// Entropy coding beside the codecs without it, and beside the entropy.

#include "compress/ans/tile_ans.h"

#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "compress/ans/rans.h"
#include "compress/typical_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/compress/test_tensors.h"

namespace runnel::tile_ans_test {
namespace {

constexpr uint64_t kSeed = 41;

using Payload = std::vector<std::byte>;

// Symbols of a geometric distribution, rarer by `ratio` from one to the next.
std::vector<uint8_t> Symbols(size_t n, double ratio, size_t alphabet, uint64_t seed) {
  const CounterRandom random(seed, RandomPurpose::kTest, 0, 0);
  std::vector<uint8_t> symbols(n);
  for (size_t i = 0; i < n; ++i) {
    const double u = random.Uniform(i);
    const double k =
        ratio == 1 ? u * static_cast<double>(alphabet) : std::log1p(-u) / std::log(ratio);
    symbols[i] = static_cast<uint8_t>(std::min(k, static_cast<double>(alphabet - 1)));
  }
  return symbols;
}

// Bytes that symbols with these counts need.
double EntropyBytes(absl::Span<const uint8_t> symbols) {
  std::array<double, 256> counts = {};
  for (const uint8_t symbol : symbols) ++counts[symbol];
  double bits = 0;
  for (const double count : counts) {
    if (count > 0) bits -= count * std::log2(count / static_cast<double>(symbols.size()));
  }
  return bits / 8;
}

TEST(Rans, TakesTheEntropyAndComesBack) {
  for (const size_t n : {1, 2, 3, 5, 100, 4096, 100'000}) {
    for (const double ratio : {1.0, 0.9, 0.5, 0.01}) {
      for (const size_t alphabet : {1, 2, 4, 16, 256}) {
        SCOPED_TRACE(absl::StrCat(n, " symbols of ", alphabet, ", ratio ", ratio));
        const std::vector<uint8_t> symbols = Symbols(n, ratio, alphabet, kSeed);
        const SymbolShares shares = SharesOf(symbols);
        Payload stream;
        RansEncode(symbols, shares, stream);
        std::vector<uint8_t> out(n);
        ASSERT_TRUE(RansDecode(stream, shares, absl::MakeSpan(out)));
        EXPECT_EQ(out, symbols);
        EXPECT_LE(static_cast<double>(stream.size()), 1.02 * EntropyBytes(symbols) + 24);
      }
    }
  }
}

TEST(Rans, DamagedStreamsAndSharesAreFound) {
  const std::vector<uint8_t> symbols = Symbols(500, 0.5, 16, kSeed);
  const SymbolShares shares = SharesOf(symbols);
  Payload stream;
  RansEncode(symbols, shares, stream);
  std::vector<uint8_t> out(symbols.size());
  for (size_t bytes = 0; bytes < stream.size(); ++bytes)
    EXPECT_FALSE(RansDecode(absl::MakeSpan(stream).first(bytes), shares, absl::MakeSpan(out)));
  int unseen = 0;
  for (size_t bit = 0; bit < 8 * stream.size(); ++bit) {
    Payload changed = stream;
    changed[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    // A changed stream ends elsewhere or in another state, but by chance.
    if (RansDecode(changed, shares, absl::MakeSpan(out))) ++unseen;
  }
  EXPECT_EQ(unseen, 0);
  SymbolShares wrong = shares;
  ++wrong[0];
  EXPECT_FALSE(RansDecode(stream, wrong, absl::MakeSpan(out)));
  out.resize(symbols.size() - 1);
  EXPECT_FALSE(RansDecode(stream, shares, absl::MakeSpan(out)));
}

struct Crossed {
  Payload payload;
  size_t written = 0;
  std::vector<float> out;
};

Crossed Cross(const std::string& name, Direction direction, const std::vector<float>& x,
              const Shape& shape) {
  const auto codec = MakeCodec(name).value();
  const auto encoder = codec->NewEncoder({kSeed, PurposeOf(direction), 3});
  Crossed crossed;
  crossed.payload.resize(codec->EncodedBytes(shape).value());
  EXPECT_TRUE(
      encoder->Encode(ViewOf(x, shape), Sequence(5), true, absl::MakeSpan(crossed.payload)).ok());
  crossed.written = codec->varies() ? encoder->written() : crossed.payload.size();
  crossed.out.resize(x.size());
  const MutableTensorView out = MutableViewOf(absl::MakeSpan(crossed.out), shape);
  EXPECT_TRUE(codec->Decode(crossed.payload, out).ok());
  std::vector<float> whole = crossed.out;
  const absl::Status cut =
      codec->Decode(absl::MakeSpan(crossed.payload).first(crossed.written), out);
  EXPECT_TRUE(cut.ok()) << cut;
  EXPECT_EQ(whole, crossed.out);
  return crossed;
}

TEST(TileAns, DecodesWhatTheCodecWithoutItDecodes) {
  for (const char* family : {"tile", "hadamard", "eden"}) {
    for (int bits = 2; bits <= 8; ++bits) {
      for (const Shape& shape : {Shape{1}, Shape{7}, Shape{300}, Shape{4, 256}, Shape{3, 1000}}) {
        for (const Direction direction : kDirections) {
          const std::vector<float> x = TypicalTensor(direction, kSeed, 1, shape.elements());
          const Crossed plain = Cross(absl::StrCat(family, ":", bits), direction, x, shape);
          const Crossed coded = Cross(absl::StrCat(family, "_ans:", bits), direction, x, shape);
          EXPECT_EQ(coded.out, plain.out) << family << bits << shape.ToString();
          EXPECT_LE(coded.written, plain.written + 4);
        }
      }
    }
  }
}

// The codes of a tile codec's payload, bit by bit, and its other bytes.
std::vector<uint8_t> CodesOf(const Payload& plain, size_t begin, size_t bits) {
  std::vector<uint8_t> codes;
  for (size_t tile = begin; tile < plain.size(); tile += 4 + 32 * bits) {
    for (size_t i = 0; i < 256; ++i) {
      unsigned code = 0;
      for (size_t plane = 0; plane < bits; ++plane) {
        const auto byte = std::to_integer<unsigned>(plain[tile + 4 + 32 * plane + i / 8]);
        code = code << 1 | (byte >> i % 8 & 1);
      }
      codes.push_back(static_cast<uint8_t>(code));
    }
  }
  return codes;
}

// Bytes = entropy of the codes, the tiles' headers, and at most 5 %.
TEST(TileAns, BytesAreTheEntropysAndFivePercent) {
  const Shape shape = {32, 64, 8, 8};
  for (const char* family : {"tile", "hadamard", "eden"}) {
    for (const size_t bits : {2, 3, 4, 5, 6, 7, 8}) {
      for (const Direction direction : kDirections) {
        const std::vector<float> x = TypicalTensor(direction, kSeed, 2, shape.elements());
        const Crossed plain = Cross(absl::StrCat(family, ":", bits), direction, x, shape);
        const Crossed coded = Cross(absl::StrCat(family, "_ans:", bits), direction, x, shape);
        const size_t key = std::strcmp(family, "tile") == 0 ? 0 : 8;
        const std::vector<uint8_t> codes = CodesOf(plain.payload, key, bits);
        ASSERT_EQ(codes.size(), x.size());
        const double needed =
            EntropyBytes(codes) + static_cast<double>(key + codes.size() / 256 * 4);
        EXPECT_LE(static_cast<double>(coded.written), 1.05 * needed) << family << bits;
        RecordProperty(absl::StrCat(family, bits, direction == Direction::kForward ? "f" : "b"),
                       absl::StrCat(static_cast<double>(coded.written) / needed));
        // What plans expect of a typical tensor.
        const CodecId id = CodecId::Parse(absl::StrCat(family, "_ans:", bits)).value();
        const double expected =
            FindCodec(id).value()->SizeShareOf(id, direction) *
            static_cast<double>(MakeCodec(id).value()->EncodedBytes(shape).value());
        EXPECT_NEAR(static_cast<double>(coded.written), expected, 0.02 * expected);
        // After ReLU more than half of the elements are one code.
        if (key == 0 && direction == Direction::kForward) {
          EXPECT_LT(static_cast<double>(coded.written), 0.75 * static_cast<double>(plain.written));
        }
      }
    }
  }
}

TEST(TileAns, DamagedPayloadsAreRefused) {
  const Shape shape = {4, 256};
  const std::vector<float> x = TypicalTensor(Direction::kForward, kSeed, 2, shape.elements());
  const Crossed good = Cross("tile_ans:4", Direction::kForward, x, shape);
  ASSERT_LT(good.written, good.payload.size());
  const auto codec = MakeCodec("tile_ans:4").value();
  std::vector<float> out(x.size());
  const auto refusal = [&](absl::Span<const std::byte> payload) {
    return std::string(codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).message());
  };
  const Payload sent(good.payload.begin(), good.payload.begin() + good.written);
  EXPECT_EQ(refusal(sent), "");
  EXPECT_THAT(refusal(absl::MakeSpan(sent).first(sent.size() - 1)),
              testing::HasSubstr("says that it has"));
  Payload bad = good.payload;
  bad.back() = std::byte{1};
  EXPECT_THAT(refusal(bad), testing::HasSubstr("bytes behind it are not 0"));
  bad = sent;
  bad[4 + 4 * 4] ^= std::byte{1};  // a share
  EXPECT_THAT(refusal(bad), testing::HasSubstr("no stream of their shares"));
}

}  // namespace
}  // namespace runnel::tile_ans_test
