#pragma once

// A predictor's trained network as a file: written by `runnel-predictor train`, read by central.
// JSON:
//
//   {"format": "runnel-network", "version": 3, "row": "mlp", "model": "any", "members": [
//     {"encoding_mean": [...], "encoding_scale": [...], "hardware_mean": [...], "hardware_scale": [...],
//      "output": [mean, scale], "encoding_1": {"weights": [row by row], "bias": [...]},
//      "encoding_2": ..., "joint_1": ..., "joint_2": ...}, ...]}
//
// In version 2 AccEPT's networks had the times themselves, not relative ones (accept_row.h).
//
// Pure functions, any thread. Contents come from outside: everything is checked before it is used.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "predictor/networks/mlp.h"

namespace runnel {

struct PredictorNetwork {
  std::string row;           // PredictorRow::network: "mlp", "accept"
  std::string model;         // model that the network serves; "any": all
  std::vector<Mlp> members;  // an ensemble, all of one size of inputs; at least one

  // Mean over the members. Sizes as Mlp::Evaluate.
  double Evaluate(absl::Span<const float> encoding, absl::Span<const float> hardware) const;

  friend bool operator==(const PredictorNetwork&, const PredictorNetwork&) = default;
};

inline constexpr size_t kMaxNetworkMembers = 32;
inline constexpr size_t kMaxNetworkBytes = size_t{64} << 20;

std::string FormatNetwork(const PredictorNetwork& network);
// InvalidArgument names the defect: another format or version, a field that is missing or not
// known, members of differing inputs, a member that CheckMlp refuses.
absl::StatusOr<PredictorNetwork> ParseNetwork(absl::string_view text);

}  // namespace runnel
