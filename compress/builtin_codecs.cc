// The table of codecs.

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/codec.h"
#include "compress/codec_kernels.h"
#include "compress/identity.h"
#include "compress/int8.h"
#include "compress/mbq.h"
#include "compress/stochastic.h"

namespace runnel {
namespace {

using MadeCodec = absl::StatusOr<std::unique_ptr<const Codec>>;

constexpr const char* kNames[] = {"identity", "int8",         "mbq:2",       "mbq:3",
                                  "mbq:4",    "mbq:5",        "mbq:6",       "mbq:7",
                                  "mbq:8",    "stochastic:4", "stochastic:8"};

absl::Status BadParameter(absl::string_view family, absl::string_view parameter,
                          absl::string_view right) {
  return absl::InvalidArgumentError(
      absl::StrCat("codec ", family, ": parameter \"", parameter, "\" should be ", right));
}

MadeCodec MakeIdentity(absl::string_view parameter) {
  if (!parameter.empty()) return BadParameter("identity", parameter, "left out");
  return MakeIdentityCodec(BestCodecKernels());
}

MadeCodec MakeInt8(absl::string_view parameter) {
  if (!parameter.empty()) return BadParameter("int8", parameter, "left out");
  return MakeInt8Codec(BestCodecKernels());
}

MadeCodec MakeMbq(absl::string_view parameter) {
  if (parameter.size() != 1 || parameter[0] < '2' || parameter[0] > '8') {
    return BadParameter("mbq", parameter, "2..8");
  }
  return MakeMbqCodec(parameter[0] - '0', BestCodecKernels());
}

MadeCodec MakeStochastic(absl::string_view parameter) {
  if (parameter != "4" && parameter != "8") return BadParameter("stochastic", parameter, "4|8");
  return MakeStochasticCodec(parameter[0] - '0', BestCodecKernels());
}

constexpr CodecFamily kFamilies[] = {
    {"identity", "", MakeIdentity},
    {"int8", "", MakeInt8},
    {"mbq", "2..8", MakeMbq},
    {"stochastic", "4|8", MakeStochastic},
};

}  // namespace

absl::StatusOr<int32_t> Codec::DecodeScaled(absl::Span<const std::byte>, const Shape&,
                                            absl::Span<std::byte>) const {
  return absl::UnimplementedError(absl::StrCat("codec ", name(), " takes FP32 tensors only"));
}

absl::Span<const CodecFamily> BuiltinCodecs() { return kFamilies; }

absl::StatusOr<std::unique_ptr<const Codec>> MakeCodec(absl::string_view name) {
  const size_t colon = name.find(':');
  const bool has_parameter = colon != absl::string_view::npos;
  const absl::string_view parameter = has_parameter ? name.substr(colon + 1) : "";
  for (const CodecFamily& family : kFamilies) {
    if (family.name != name.substr(0, colon)) continue;
    if (has_parameter && parameter.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("codec \"", name, "\": colon without more"));
    }
    return family.make(parameter);
  }
  return absl::InvalidArgumentError(absl::StrCat("codec \"", name, "\" is not known; there are ",
                                                 absl::StrJoin(CodecNames(), ", ")));
}

std::vector<std::string> CodecNames() { return {std::begin(kNames), std::end(kNames)}; }

}  // namespace runnel
