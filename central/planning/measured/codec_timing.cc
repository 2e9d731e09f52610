#include "central/planning/measured/codec_timing.h"

#include <algorithm>

#include "compress/link_bits.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kTimedBits = 4;
// Elements of a tensor that any family can code.
constexpr int64_t kElements = 1 << 16;

absl::StatusOr<std::string> OfFamily(const std::string& family, const CodecId& exact) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<BitsChoice> choices, BitsChoices(family, exact));
  const auto timed = std::find_if(choices.begin(), choices.end(), [](const BitsChoice& choice) {
    return choice.bits >= kTimedBits;
  });
  return (timed == choices.end() ? exact : timed->codec).text();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CodecsToTime(const CodecInputs& codecs) {
  std::vector<std::string> names;
  if (codecs.follow_links) {
    for (const std::string& family : {codecs.bits.family_forward, codecs.bits.family_backward}) {
      RUNNEL_ASSIGN_OR_RETURN(names.emplace_back(), OfFamily(family, codecs.bits.exact));
    }
  } else {
    names = {codecs.forward.steps().back().codec.text(),
             codecs.backward.steps().back().codec.text()};
  }
  if (names[0] == names[1]) names.pop_back();
  return names;
}

}  // namespace runnel
