#pragma once

// The name of a codec: a family of the table in compress/ and its parameter. Text form, as users,
// journals and check-points write it: "identity", "mbq:4", "topk:0.1", "mx:fp8" (family "mx:fp").

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/base/model/number_format.h"

namespace runnel {

struct CodecId {
  std::string family;
  std::optional<double> parameter;

  // The codec that sends FP32 tensors as they are.
  static CodecId Identity();
  // InvalidArgument for a family that is not lower-case letters, digits and '_' behind a letter,
  // and for a parameter that is no number in its shortest form ("4" and "0.1", not "04" and ".10").
  // Whether the codec exists is not looked at.
  static absl::StatusOr<CodecId> Parse(absl::string_view text);

  std::string text() const;
  bool is_identity() const { return *this == Identity(); }

  friend bool operator==(const CodecId&, const CodecId&) = default;
};

// The lossless codec between stages of this format: identity, or int8 where boundary tensors are
// scaled int8.
CodecId LosslessCodec(const NumberFormat& format);

// The parameters that a family of codecs has.
struct ParameterRange {
  enum class Kind {
    kNone,
    kInteger,  // min, min + step, ... max
    kRatio,    // any number from min to max
  };
  Kind kind = Kind::kNone;
  double min = 0;
  double max = 0;
  double step = 1;

  bool Contains(const std::optional<double>& parameter) const;
  // For messages and --help: "2..8", "4|8", "0.001..1", "" for none.
  std::string text() const;

  friend bool operator==(const ParameterRange&, const ParameterRange&) = default;
};

// A worker's offer of a family at the handshake.
struct CodecFamily {
  std::string name;
  ParameterRange parameter;

  // "mbq:2..8".
  std::string text() const;

  friend bool operator==(const CodecFamily&, const CodecFamily&) = default;
};

// InvalidArgument names the codec and lists `families` unless one of them has it.
absl::Status CheckHasCodec(const std::vector<CodecFamily>& families, const CodecId& codec);

}  // namespace runnel
