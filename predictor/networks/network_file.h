#pragma once

// A predictor's trained network as a file: written by `runnel-predictor train`, read by central.
// Text:
//
//   runnel-network 1
//   row: mlp
//   model: any
//   members: 5
//   runnel-mlp 1
//   ...              the members, one behind the other (mlp.h)
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
  std::string row;           // row of the table of predictors: "mlp", "accept"
  std::string model;         // model that the network serves; "any": all
  std::vector<Mlp> members;  // an ensemble, all of one size of inputs; at least one

  // Mean over the members. Sizes as Mlp::Evaluate.
  double Evaluate(absl::Span<const float> encoding, absl::Span<const float> hardware) const;

  friend bool operator==(const PredictorNetwork&, const PredictorNetwork&) = default;
};

inline constexpr int kMaxNetworkMembers = 32;

std::string FormatNetwork(const PredictorNetwork& network);
// InvalidArgument names the defect: a wrong head, another number of members than it says, members
// of differing inputs, a member that ParseMlp refuses.
absl::StatusOr<PredictorNetwork> ParseNetwork(absl::string_view text);

}  // namespace runnel
