#pragma once

// Channels of an ONNX graph that are parted or shuffled. Pure. For onnx_graph.cc.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "onnx/onnx_pb.h"
#include "partition/import/onnx_weights.h"
#include "proto/base/tensor/shape.h"

namespace runnel::import {

// Neighbouring channels.
struct ChannelRange {
  int64_t begin = 0, count = 0;
};

// What each output of a Split over the channels takes. InvalidArgument: another axis, sizes that are
// no constants or do not fit. x: of its input.
absl::StatusOr<std::vector<ChannelRange>> ReadSplit(const onnx::NodeProto& node,
                                                    const Constants& constants, const Shape& x);
// What a Slice over the channels takes.
absl::StatusOr<ChannelRange> ReadSlice(const onnx::NodeProto& node, const Constants& constants,
                                       const Shape& x);

// Shuffles of channels, which exporters write as three nodes: a Reshape of (batch, channels, ...) to
// (batch, groups, channels / groups, ...), a Transpose of the middle two, and a Reshape back.
class ChannelShuffles {
 public:
  struct Shuffle {
    std::string value;  // what is shuffled
    int64_t groups = 1;
    bool is_turned = false;  // else nothing happens to it
  };

  // Whether the value lies between these nodes.
  bool Has(const std::string& value) const { return open_.count(value) > 0; }
  // Whether a Reshape of a value of shape x to these sizes makes groups.
  static bool MakesGroups(absl::Span<const float> to, const Shape& x);
  // The first node, which MakesGroups, gives `output`.
  void Begin(const std::string& output, absl::Span<const float> to, const std::string& value,
             const Shape& x);
  // The second one, of a value that lies between them. InvalidArgument: it turns something else.
  absl::Status Turn(const onnx::NodeProto& node);
  // The third one, to these sizes. InvalidArgument: to other channels.
  absl::StatusOr<Shuffle> End(const std::string& input, absl::Span<const float> to) const;

 private:
  struct Open {
    Shuffle shuffle;
    Shape x;
  };
  std::map<std::string, Open> open_;
};

}  // namespace runnel::import
