// A payload for a decoder: which codec and how many elements, then the bytes; and the same bytes as
// an encoder's saved state.

#include <cmath>

#include "compress/codec.h"
#include "tests/compress/test_tensors.h"
#include "tests/fuzz/fuzz_target.h"

namespace runnel::fuzz {

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const std::vector<std::string> names = ExampleCodecNames();
  for (size_t i = 0; i < names.size(); ++i) {
    for (const int elements : {1, 77}) {
      const auto codec = MakeCodec(names[i]).value();
      const Shape shape = {elements};
      const std::vector<float> x = NormalTensor(elements, 1);
      std::vector<std::byte> payload(codec->EncodedBytes(shape).value());
      const absl::Status encoded = codec->NewEncoder({})->Encode(ViewOf(x, shape), Sequence(0),
                                                                 true, absl::MakeSpan(payload));
      Require(encoded.ok(), "seeds can be encoded");
      seeds.push_back(std::string{static_cast<char>(i), static_cast<char>(elements)} +
                      std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
    }
  }
  return seeds;
}

void Try(absl::string_view input) {
  if (input.size() < 2) return;
  static const std::vector<std::string> names = ExampleCodecNames();
  const std::string& name = names[static_cast<uint8_t>(input[0]) % names.size()];
  const int64_t elements = 1 + static_cast<uint8_t>(input[1]);
  input.remove_prefix(2);
  const auto codec = MakeCodec(name).value();
  const Shape shape = {elements};
  // Exactly as long as it should be, so that a sanitizer sees the first byte beyond.
  std::vector<float> out(static_cast<size_t>(elements));
  const std::vector<std::byte> payload(
      reinterpret_cast<const std::byte*>(input.data()),
      reinterpret_cast<const std::byte*>(input.data()) + input.size());
  if (codec->Decode(payload, MutableViewOf(absl::MakeSpan(out), shape)).ok()) {
    for (const float value : out) Require(std::isfinite(value), "decoded values are finite");
  }
  const auto encoder = codec->NewEncoder({});
  if (encoder->RestoreState(input).ok()) {
    const std::vector<float> x = NormalTensor(elements, 1);
    std::vector<std::byte> encoded(codec->EncodedBytes(shape).value());
    Require(encoder->Encode(ViewOf(x, shape), Sequence(0), false, absl::MakeSpan(encoded)).ok(),
            "a state that was accepted serves");
  }
}

}  // namespace runnel::fuzz
