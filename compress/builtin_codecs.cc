// The table of codecs.

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "compress/ans/tile_ans.h"
#include "compress/aqsgd.h"
#include "compress/auto_codec.h"
#include "compress/codec.h"
#include "compress/grid.h"
#include "compress/identity.h"
#include "compress/int8.h"
#include "compress/kernels/codec_kernels.h"
#include "compress/lowrank.h"
#include "compress/mbq/learned.h"
#include "compress/mbq/mbq.h"
#include "compress/mbq/mbq_c.h"
#include "compress/mx.h"
#include "compress/number_type.h"
#include "compress/stochastic.h"
#include "compress/tile/tile.h"
#include "compress/topk/topk.h"
#include "compress/typical_errors.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

using Made = std::unique_ptr<const Codec>;
using Kind = ParameterRange::Kind;

constexpr ParameterRange kTwoToEight = {Kind::kInteger, 2, 8};

constexpr double kMostExamples = 8;

// Bits an element of families whose parameter is the number of bits.
double Bits(double bits) { return bits; }

double NoError(Direction, double) { return 0; }

// Of families that are for one direction only.
template <double (*error)(double)>
double OneWayError(Direction, double parameter) {
  return error(parameter);
}

// Values in 16 bits lose the same of all tensors; in 8 bits too, but for what is far below a
// tensor's largest value.
double BFloat16Error(Direction, double) { return 2.6e-6; }
double HalfError(Direction, double) { return 4.1e-8; }
double E4M3Error(Direction, double) { return 6.6e-4; }
double E5M2Error(Direction, double) { return 2.6e-3; }

int Int(double parameter) { return static_cast<int>(parameter); }

Made MakeTileAns(double bits, const CodecKernels& kernels) {
  return MakeTileAnsCodec({.bits = Int(bits)}, kernels);
}

Made MakeHadamardAns(double bits, const CodecKernels& kernels) {
  return MakeTileAnsCodec({.bits = Int(bits), .rotate = true}, kernels);
}

Made MakeEdenAns(double bits, const CodecKernels& kernels) {
  return MakeTileAnsCodec({.bits = Int(bits), .rotate = true, .unbiased = true}, kernels);
}

Made MakeTile(double bits, const CodecKernels& kernels) {
  return MakeTileCodec({.bits = Int(bits)}, kernels);
}

Made MakeEden(double bits, const CodecKernels& kernels) {
  return MakeTileCodec({.bits = Int(bits), .rotate = true, .unbiased = true}, kernels);
}

Made MakeHadamard(double bits, const CodecKernels& kernels) {
  return MakeTileCodec({.bits = Int(bits), .rotate = true}, kernels);
}

Made MakeHadamardFeedback(double bits, const CodecKernels& kernels) {
  return MakeTileCodec({.bits = Int(bits), .rotate = true, .feedback = true}, kernels);
}

constexpr CodecRow kRows[] = {
    {.family = "amsgrad_mbq",
     .parameter = kTwoToEight,
     .remembers = true,
     .learns = true,
     .bits = Bits,
     .relative_error = OneWayError<AmsgradMbqError>,
     .make = [](double bits, const CodecKernels& kernels) -> Made {
       return MakeAmsgradMbqCodec(Int(bits), kernels);
     }},
    {.family = "aqsgd",
     .parameter = kTwoToEight,
     .keeps_samples = true,
     .bits = Bits,
     .relative_error = OneWayError<AqsgdError>,
     .make = [](double bits, const CodecKernels& kernels) -> Made {
       return MakeAqsgdCodec(Int(bits), kernels);
     }},
    {.family = "auto",
     .parameter = kTwoToEight,
     .remembers = true,
     .masks = true,
     .bits = Bits,
     .relative_error = AutoError,
     .make = [](double bits, const CodecKernels& kernels) -> Made {
       return MakeAutoCodec(Int(bits), kernels);
     }},
    {.family = "bf16",
     .floats_only = true,
     .bits = [](double) { return 16.0; },
     .relative_error = BFloat16Error,
     .make = [](double, const CodecKernels& kernels) -> Made {
       return MakeNumberTypeCodec("bf16", DType::kBFloat16, kernels);
     }},
    {.family = "e4m3",
     .floats_only = true,
     .bits = [](double) { return 8.0; },
     .relative_error = E4M3Error,
     .make = [](double, const CodecKernels& kernels) -> Made {
       return MakeNumberTypeCodec("e4m3", DType::kE4M3, kernels);
     }},
    {.family = "e5m2",
     .floats_only = true,
     .bits = [](double) { return 8.0; },
     .relative_error = E5M2Error,
     .make = [](double, const CodecKernels& kernels) -> Made {
       return MakeNumberTypeCodec("e5m2", DType::kE5M2, kernels);
     }},
    {.family = "eden",
     .parameter = kTwoToEight,
     .bits = Bits,
     .relative_error = EdenError,
     .make = MakeEden},
    {.family = "eden_ans",
     .parameter = kTwoToEight,
     .bits = Bits,
     .relative_error = EdenError,
     .size_share = EdenAnsShare,
     .make = MakeEdenAns},
    {.family = "fp16",
     .floats_only = true,
     .bits = [](double) { return 16.0; },
     .relative_error = HalfError,
     .make = [](double, const CodecKernels& kernels) -> Made {
       return MakeNumberTypeCodec("fp16", DType::kFloat16, kernels);
     }},
    {.family = "grid",
     .parameter = {Kind::kInteger, 1, kMostGridBits},
     .bits = Bits,
     .relative_error = GridError,
     .make = [](double bits, const CodecKernels& kernels) -> Made {
       return MakeGridCodec(Int(bits), kernels);
     }},
    {.family = "hadamard",
     .parameter = kTwoToEight,
     .bits = Bits,
     .relative_error = HadamardError,
     .make = MakeHadamard},
    {.family = "hadamard_ans",
     .parameter = kTwoToEight,
     .bits = Bits,
     .relative_error = HadamardError,
     .size_share = HadamardAnsShare,
     .make = MakeHadamardAns},
    {.family = "hadamard_ef",
     .parameter = kTwoToEight,
     .remembers = true,
     .feeds_back = true,
     .bits = Bits,
     .relative_error = OneWayError<HadamardFeedbackError>,
     .make = MakeHadamardFeedback},
    {.family = "identity",
     .lossless = true,
     .bits = [](double) { return 32.0; },
     .relative_error = NoError,
     .make = [](double, const CodecKernels& kernels) -> Made {
       return MakeIdentityCodec(kernels);
     }},
    {.family = "int8",
     .lossless = true,
     .takes_scaled = true,
     .bits = [](double) { return 8.0; },
     .relative_error = NoError,
     .make = [](double, const CodecKernels& kernels) -> Made { return MakeInt8Codec(kernels); }},
    {.family = "lowrank",
     .parameter = {Kind::kInteger, 1, kMaxRank},
     .remembers = true,
     .largest = LargestRank,
     .bits = nullptr,
     .relative_error = LowrankError,
     .make = [](double rank, const CodecKernels&) -> Made { return MakeLowrankCodec(Int(rank)); }},
    {.family = "mbq",
     .parameter = kTwoToEight,
     .remembers = true,
     .bits = Bits,
     .relative_error = MbqError,
     .make = [](double bits, const CodecKernels& kernels) -> Made {
       return MakeMbqCodec(Int(bits), kernels);
     }},
    {.family = "mbq_c",
     .parameter = kTwoToEight,
     .remembers = true,
     .masks = true,
     .bits = Bits,
     .relative_error = MaskedMbqError,
     .make = [](double bits, const CodecKernels& kernels) -> Made {
       return MakeMaskedMbqCodec(Int(bits), kernels);
     }},
    {.family = "mx:fp",
     .parameter = {Kind::kInteger, 4, 8, 2},
     .floats_only = true,
     .bits = Bits,
     .relative_error = MxError,
     .make = [](double bits, const CodecKernels& kernels) -> Made {
       return MakeMxCodec(Int(bits), kernels);
     }},
    {.family = "recipe",
     .bits = [](double) { return double{kRecipeBits}; },
     .relative_error = [](Direction direction,
                          double) { return GridError(direction, kRecipeBits); },
     .make = [](double, const CodecKernels& kernels) -> Made { return MakeRecipeCodec(kernels); }},
    {.family = "stochastic",
     .parameter = {Kind::kInteger, 4, 8, 4},
     .bits = Bits,
     .relative_error = StochasticError,
     .make = [](double bits, const CodecKernels& kernels) -> Made {
       return MakeStochasticCodec(Int(bits), kernels);
     }},
    {.family = "tile",
     .parameter = kTwoToEight,
     .bits = Bits,
     .relative_error = TileError,
     .make = MakeTile},
    {.family = "tile_ans",
     .parameter = kTwoToEight,
     .bits = Bits,
     .relative_error = TileError,
     .size_share = TileAnsShare,
     .make = MakeTileAns},
    {.family = "topk",
     .parameter = {Kind::kRatio, 0.001, 0.9},
     .remembers = true,
     .feeds_back = true,
     .bits = TopkBits,
     .relative_error = OneWayError<TopkError>,
     .make = MakeTopkCodec},
    {.family = "topk8",
     .parameter = {Kind::kRatio, 0.001, 0.9},
     .remembers = true,
     .feeds_back = true,
     .bits = Topk8Bits,
     .relative_error = OneWayError<TopkError>,
     .make = MakeTopk8Codec},
    {.family = "uniform",
     .parameter = kTwoToEight,
     .remembers = true,
     .learns = true,
     .bits = Bits,
     .relative_error = OneWayError<UniformError>,
     .make = [](double bits, const CodecKernels&) -> Made { return MakeUniformCodec(Int(bits)); }},
};

CodecFamily FamilyOf(const CodecRow& row) { return {std::string(row.family), row.parameter}; }

}  // namespace

absl::StatusOr<int32_t> Codec::DecodeScaled(absl::Span<const std::byte>, const Shape&,
                                            absl::Span<std::byte>) const {
  return absl::UnimplementedError(absl::StrCat("codec ", name(), " takes FP32 tensors only"));
}

bool SendsAsItIs(const Codec& codec, DType type) {
  return type != DType::kFloat32 && IsFloat(type) && codec.name() == CodecId::Identity().text();
}

Bytes PayloadBytes(const Codec& codec, const NumberFormat& format, Direction direction,
                   const Shape& shape) {
  const DType type = format.boundary(direction);
  const int64_t coded = SendsAsItIs(codec, type)
                            ? shape.elements() * static_cast<int64_t>(SizeOf(type))
                            : codec.EncodedBytes(shape).value();
  return Bytes(coded + SidePayloadBytes(format, shape, direction));
}

absl::Span<const CodecRow> BuiltinCodecs() { return kRows; }

const CodecRow* FindCodecFamily(absl::string_view family) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [family](const CodecRow& one) { return one.family == family; });
  return row == std::end(kRows) ? nullptr : row;
}

absl::StatusOr<const CodecRow*> FindCodec(const CodecId& codec) {
  RUNNEL_RETURN_IF_ERROR(CheckHasCodec(CodecFamilies(), codec));
  return FindCodecFamily(codec.family);
}

absl::Status CheckCodecFits(const CodecId& codec, const NumberFormat& format, Direction direction) {
  RUNNEL_ASSIGN_OR_RETURN(const CodecRow* row, FindCodec(codec));
  const auto refused = [&codec](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("codec ", codec.text(), why));
  };
  if (row->learns && (format.integer_boundaries() || direction == Direction::kBackward)) {
    return refused(
        " learns from the gradients of FP32 activations: it is for --codec-forward of a "
        "floating-point recipe");
  }
  if (row->feeds_back && direction == Direction::kForward) {
    return refused(
        " adds the error of one tensor to the next, which holds other samples' activations: it is "
        "for --codec-backward; forward take hadamard or eden");
  }
  if (row->keeps_samples && direction == Direction::kBackward) {
    return refused(
        " sends what changed in a sample's activations since the epoch before: it is for "
        "--codec-forward; take hadamard or eden for --codec-backward");
  }
  if (row->floats_only && format.integer_boundaries()) {
    return refused(absl::StrCat(" is for floating-point recipes, and this one's boundaries are ",
                                Name(format.boundary(direction)),
                                ": take int8, or tile for fewer bits"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Codec>> MakeCodec(const CodecId& codec) {
  RUNNEL_ASSIGN_OR_RETURN(const CodecRow* row, FindCodec(codec));
  return row->make(codec.parameter.value_or(0), BestCodecKernels());
}

absl::StatusOr<std::unique_ptr<const Codec>> MakeCodec(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(const CodecId codec, CodecId::Parse(text));
  return MakeCodec(codec);
}

std::vector<CodecFamily> CodecFamilies() {
  std::vector<CodecFamily> families;
  for (const CodecRow& row : kRows) families.push_back(FamilyOf(row));
  return families;
}

std::vector<CodecId> ExampleCodecs() {
  std::vector<CodecId> codecs;
  for (const CodecRow& row : kRows) {
    const std::string family(row.family);
    const ParameterRange& range = row.parameter;
    if (range.kind == Kind::kNone) codecs.push_back({family, std::nullopt});
    if (range.kind == Kind::kInteger) {
      const bool is_long = range.max > kMostExamples;  // then powers of two
      for (double parameter = range.min; parameter <= std::min(range.max, kMostExamples);
           parameter += is_long ? parameter : range.step) {
        codecs.push_back({family, parameter});
      }
    }
    if (range.kind == Kind::kRatio) {
      for (double ratio : {0.01, 0.1, 0.5}) codecs.push_back({family, ratio});
    }
  }
  return codecs;
}

std::vector<std::string> ExampleCodecNames() {
  std::vector<std::string> names;
  for (const CodecId& codec : ExampleCodecs()) names.push_back(codec.text());
  return names;
}

}  // namespace runnel
