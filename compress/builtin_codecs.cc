// The table of codecs.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compress/codec.h"
#include "compress/codec_kernels.h"
#include "compress/identity.h"
#include "compress/int8.h"
#include "compress/learned.h"
#include "compress/mbq.h"
#include "compress/stochastic.h"
#include "compress/tile.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using MadeCodec = absl::StatusOr<std::unique_ptr<const Codec>>;

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

// The bits of a family that has 2 to 8.
absl::StatusOr<int> TwoToEight(absl::string_view family, absl::string_view parameter) {
  if (parameter.size() == 1 && parameter[0] >= '2' && parameter[0] <= '8')
    return parameter[0] - '0';
  return BadParameter(family, parameter, "2..8");
}

MadeCodec MakeMbq(absl::string_view parameter) {
  RUNNEL_ASSIGN_OR_RETURN(const int bits, TwoToEight("mbq", parameter));
  return MakeMbqCodec(bits, BestCodecKernels());
}

MadeCodec MakeUniform(absl::string_view parameter) {
  RUNNEL_ASSIGN_OR_RETURN(const int bits, TwoToEight("uniform", parameter));
  return MakeUniformCodec(bits);
}

MadeCodec MakeAmsgradMbq(absl::string_view parameter) {
  RUNNEL_ASSIGN_OR_RETURN(const int bits, TwoToEight("amsgrad_mbq", parameter));
  return MakeAmsgradMbqCodec(bits, BestCodecKernels());
}

MadeCodec MakeTile(absl::string_view parameter) {
  RUNNEL_ASSIGN_OR_RETURN(const int bits, TwoToEight("tile", parameter));
  return MakeTileCodec({.bits = bits}, BestCodecKernels());
}

MadeCodec MakeHadamard(absl::string_view parameter) {
  RUNNEL_ASSIGN_OR_RETURN(const int bits, TwoToEight("hadamard", parameter));
  return MakeTileCodec({.bits = bits, .rotate = true}, BestCodecKernels());
}

MadeCodec MakeHadamardFeedback(absl::string_view parameter) {
  RUNNEL_ASSIGN_OR_RETURN(const int bits, TwoToEight("hadamard_ef", parameter));
  return MakeTileCodec({.bits = bits, .rotate = true, .feedback = true}, BestCodecKernels());
}

MadeCodec MakeStochastic(absl::string_view parameter) {
  if (parameter != "4" && parameter != "8") return BadParameter("stochastic", parameter, "4|8");
  return MakeStochasticCodec(parameter[0] - '0', BestCodecKernels());
}

constexpr CodecFamily kFamilies[] = {
    {"amsgrad_mbq", "2..8", MakeAmsgradMbq},
    {"hadamard", "2..8", MakeHadamard},
    {"hadamard_ef", "2..8", MakeHadamardFeedback},
    {"identity", "", MakeIdentity},
    {"int8", "", MakeInt8},
    {"mbq", "2..8", MakeMbq},
    {"stochastic", "4|8", MakeStochastic},
    {"tile", "2..8", MakeTile},
    {"uniform", "2..8", MakeUniform},
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

bool LearnsFromLoss(absl::string_view name) {
  const absl::string_view family = name.substr(0, name.find(':'));
  return family == "uniform" || family == "amsgrad_mbq";
}

std::vector<std::string> CodecNames() {
  std::vector<std::string> names;
  for (const CodecFamily& family : kFamilies) {
    const std::string name(family.name.data(), family.name.size());
    if (family.parameters.empty()) names.push_back(name);
    for (int bits = 1; bits <= 8; ++bits) {
      if (family.make(absl::StrCat(bits)).ok()) names.push_back(absl::StrCat(name, ":", bits));
    }
  }
  return names;
}

}  // namespace runnel
