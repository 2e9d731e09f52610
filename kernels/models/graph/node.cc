#include "kernels/models/graph/node.h"

#include <tuple>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel::inference {
namespace {

constexpr int64_t kMaxSide = int64_t{1} << 20;

bool InRange(int64_t value, int64_t least) { return value >= least && value <= kMaxSide; }

absl::Status CheckElements(int64_t h, int64_t w, int64_t c) {
  if (!InRange(h, 1) || !InRange(w, 1) || !InRange(c, 1) || h * w > kMaxValueElements / c) {
    return absl::InvalidArgumentError(absl::StrCat("a value of ", h, "x", w, "x", c));
  }
  return absl::OkStatus();
}

// Output positions of a window along one axis; 0: it does not fit.
int64_t Positions(int64_t in, int64_t kernel, int64_t stride, int64_t pad) {
  return in + 2 * pad < kernel ? 0 : (in + 2 * pad - kernel) / stride + 1;
}

absl::Status InferWindow(Node& node) {
  ConvShape& s = node.shape;
  const bool fits = InRange(s.kernel_h, 1) && InRange(s.kernel_w, 1) && InRange(s.stride_h, 1) &&
                    InRange(s.stride_w, 1) && InRange(s.pad_h, 0) && InRange(s.pad_w, 0);
  if (!fits) return absl::InvalidArgumentError("a window out of range");
  if (node.kind == NodeKind::kMaxPool && (s.pad_h >= s.kernel_h || s.pad_w >= s.kernel_w)) {
    return absl::InvalidArgumentError("a max pool with windows that see nothing");
  }
  RUNNEL_RETURN_IF_ERROR(CheckElements(s.in_h + 2 * s.pad_h, s.in_w + 2 * s.pad_w, s.in_c));
  if (node.kind == NodeKind::kAvgPool && (s.pad_h > 0 || s.pad_w > 0)) {
    return absl::InvalidArgumentError("an average pool with padding");
  }
  s.out_h = Positions(s.in_h, s.kernel_h, s.stride_h, s.pad_h);
  s.out_w = Positions(s.in_w, s.kernel_w, s.stride_w, s.pad_w);
  if (s.out_h < 1 || s.out_w < 1) {
    return absl::InvalidArgumentError("a window larger than its input");
  }
  return absl::OkStatus();
}

absl::Status InferConv(Node& node) {
  ConvShape& s = node.shape;
  if (!InRange(s.groups, 1) || !InRange(s.out_c, 1) || s.in_c % s.groups != 0 ||
      s.out_c % s.groups != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("channels ", s.in_c, " -> ", s.out_c, " in ", s.groups, " groups"));
  }
  // Each factor is in range, their product need not be.
  if (s.kernel_h > kMaxValueElements / s.kernel_w || s.taps() > kMaxValueElements / s.group_in() ||
      s.taps() * s.group_in() > kMaxValueElements / s.out_c) {
    return absl::InvalidArgumentError("weights out of range");
  }
  return InferWindow(node);
}

}  // namespace

absl::string_view Name(NodeKind kind) {
  switch (kind) {
    case NodeKind::kInput:
      return "input";
    case NodeKind::kConv:
      return "conv";
    case NodeKind::kMaxPool:
      return "max_pool";
    case NodeKind::kAvgPool:
      return "avg_pool";
    case NodeKind::kAdd:
      return "add";
    case NodeKind::kClamp:
      return "clamp";
    case NodeKind::kFlatten:
      return "flatten";
  }
  return "?";
}

bool operator==(const Node& a, const Node& b) {
  const auto fields = [](const Node& n) {
    const ConvShape& s = n.shape;
    return std::make_tuple(n.kind, n.inputs, n.clamp, n.layer, n.op, s.in_h, s.in_w, s.in_c,
                           s.out_h, s.out_w, s.out_c, s.kernel_h, s.kernel_w, s.stride_h,
                           s.stride_w, s.pad_h, s.pad_w, s.groups);
  };
  return fields(a) == fields(b);
}

absl::Status InferNode(absl::Span<const Node> before, Node& node) {
  ConvShape& s = node.shape;
  if ((node.kind == NodeKind::kInput) != before.empty()) {
    return absl::InvalidArgumentError("the samples are the first node, and no other");
  }
  if (node.kind == NodeKind::kInput) {
    RUNNEL_RETURN_IF_ERROR(CheckElements(s.out_h, s.out_w, s.out_c));
    std::tie(s.in_h, s.in_w, s.in_c) = std::tie(s.out_h, s.out_w, s.out_c);
    return absl::OkStatus();
  }
  for (int i = 0; i < node.input_count(); ++i) {
    const int32_t input = node.inputs[i];
    if (input < 0 || static_cast<size_t>(input) >= before.size()) {
      return absl::InvalidArgumentError(absl::StrCat("reads node ", input, ", which is not there"));
    }
  }
  const ConvShape& x = before[node.inputs[0]].shape;
  std::tie(s.in_h, s.in_w, s.in_c) = std::tie(x.out_h, x.out_w, x.out_c);
  switch (node.kind) {
    case NodeKind::kConv:
      RUNNEL_RETURN_IF_ERROR(InferConv(node));
      break;
    case NodeKind::kMaxPool:
    case NodeKind::kAvgPool:
      s.out_c = s.in_c;
      RUNNEL_RETURN_IF_ERROR(InferWindow(node));
      break;
    case NodeKind::kAdd: {
      const ConvShape& y = before[node.inputs[1]].shape;
      if (x.out_h != y.out_h || x.out_w != y.out_w || x.out_c != y.out_c) {
        return absl::InvalidArgumentError("adds values of unequal shapes");
      }
      [[fallthrough]];
    }
    case NodeKind::kClamp:
      std::tie(s.out_h, s.out_w, s.out_c) = std::tie(s.in_h, s.in_w, s.in_c);
      break;
    case NodeKind::kFlatten:
      s.out_h = s.out_w = 1;
      s.out_c = s.in_h * s.in_w * s.in_c;
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("node kind ", static_cast<int>(node.kind), " is not known"));
  }
  return CheckElements(s.out_h, s.out_w, s.out_c);
}

}  // namespace runnel::inference
