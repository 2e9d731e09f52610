#include "central/planning/codec_timing.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compress/codec.h"
#include "compress/link_bits.h"
#include "proto/base/random.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor_view.h"

namespace runnel {

absl::StatusOr<double> MeasureCodecs(const BandwidthBits& bits, const Clock& clock) {
  constexpr int64_t kElements = 1 << 16;
  constexpr int kRepetitions = 5;
  const Shape shape = {kElements};
  const CounterRandom random(1, RandomPurpose::kTest, 0, 0);
  std::vector<float> values(kElements);
  for (int64_t e = 0; e < kElements; ++e) values[e] = static_cast<float>(random.Normal(e));
  double slowest_ns = 0;
  for (const std::string& family : {bits.family_forward, bits.family_backward}) {
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<BitsChoice> choices,
                            BitsChoices(family, shape, bits.exact));
    const auto four = std::find_if(choices.begin(), choices.end(),
                                   [](const BitsChoice& choice) { return choice.bits >= 4; });
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<const Codec> codec, MakeCodec(four->codec));
    const std::unique_ptr<Encoder> encoder = codec->NewEncoder({});
    std::vector<std::byte> payload(codec->EncodedBytes(shape).value());
    std::vector<float> decoded(kElements);
    std::vector<int64_t> times;
    for (int i = 0; i < kRepetitions; ++i) {
      const int64_t begin_ns = clock.NowNanos();
      RUNNEL_RETURN_IF_ERROR(
          encoder->Encode(ViewOf(values, shape), Sequence(i), i == 0, absl::MakeSpan(payload)));
      const int64_t encoded_ns = clock.NowNanos();
      RUNNEL_RETURN_IF_ERROR(codec->Decode(payload, MutableViewOf(absl::MakeSpan(decoded), shape)));
      times.push_back(std::max(encoded_ns - begin_ns, clock.NowNanos() - encoded_ns));
    }
    std::nth_element(times.begin(), times.begin() + kRepetitions / 2, times.end());
    slowest_ns = std::max(slowest_ns, static_cast<double>(times[kRepetitions / 2]));
  }
  return slowest_ns * 1e-9 / static_cast<double>(kElements * sizeof(float));
}

}  // namespace runnel
