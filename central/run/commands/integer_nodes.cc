#include "central/run/commands/integer_nodes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/inference.pb.h"

namespace runnel {
namespace {

constexpr int kMostShift = 62;

absl::StatusOr<IntegerNode> NodeOf(proto::QuantizedNode& message) {
  IntegerNode node;
  if (message.kind() > UINT8_MAX || message.clamp() > 2)
    return absl::InvalidArgumentError("is of an unknown kind");
  node.kind = static_cast<IntegerNode::Kind>(message.kind());
  node.clamp = static_cast<IntegerNode::Clamp>(message.clamp());
  node.inputs.assign(message.inputs().begin(), message.inputs().end());
  if (message.window_size() > 0) {
    if (message.window_size() != static_cast<int>(node.window.size()))
      return absl::InvalidArgumentError("has a window of other sizes");
    std::copy(message.window().begin(), message.window().end(), node.window.begin());
  }
  node.out_channels = message.out_channels();
  node.groups = message.groups();
  node.codes = {message.scale(), message.zero(), message.max_code()};
  node.weights = std::move(*message.mutable_weights());
  node.weight_zeros.assign(message.weight_zeros().begin(), message.weight_zeros().end());
  node.bias.assign(message.bias().begin(), message.bias().end());
  node.real_weights.assign(message.real_weights().begin(), message.real_weights().end());
  node.real_bias.assign(message.real_bias().begin(), message.real_bias().end());
  node.gives_logits = message.logit_scales_size() > 0;
  if (node.gives_logits) {
    node.factors.assign(message.logit_scales().begin(), message.logit_scales().end());
    return node;
  }
  if (message.multipliers_size() != message.shifts_size())
    return absl::InvalidArgumentError("has multipliers without shifts");
  for (int i = 0; i < message.shifts_size(); ++i) {
    const int32_t multiplier = message.multipliers(i), shift = message.shifts(i);
    if (multiplier < 0 || shift < 1 || shift > kMostShift)
      return absl::InvalidArgumentError("a factor out of range");
    node.factors.push_back(std::ldexp(static_cast<double>(multiplier), -shift));
  }
  return node;
}

}  // namespace

absl::StatusOr<std::vector<IntegerNode>> IntegerNodes(absl::string_view bytes) {
  proto::QuantizedGraph graph;
  if (!graph.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return absl::InvalidArgumentError("its graph cannot be parsed");
  std::vector<IntegerNode> nodes;
  for (proto::QuantizedNode& message : *graph.mutable_nodes()) {
    absl::StatusOr<IntegerNode> node = NodeOf(message);
    if (!node.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", nodes.size(), ": ", node.status().message()));
    }
    nodes.push_back(*std::move(node));
  }
  return nodes;
}

}  // namespace runnel
