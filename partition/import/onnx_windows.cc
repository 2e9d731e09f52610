#include "partition/import/onnx_windows.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

constexpr int64_t kMostPadding = int64_t{1} << 20;

absl::Status UnsupportedWindow(absl::string_view what) { return absl::InvalidArgumentError(what); }

bool IsAll(const std::vector<int64_t>& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [value](int64_t v) { return v == value; });
}

// auto_pad SAME_UPPER and SAME_LOWER: as many outputs as inputs by the stride.
Pads SamePads(const OpSpec& spec, absl::Span<const int64_t> lengths, bool more_in_front) {
  Pads pads(2 * lengths.size());
  for (size_t axis = 0; axis < lengths.size(); ++axis) {
    const int64_t outputs = (lengths[axis] + spec.stride[axis] - 1) / spec.stride[axis];
    const int64_t covered = (outputs - 1) * spec.stride[axis] + spec.extent(static_cast<int>(axis));
    const int64_t all = std::max<int64_t>(0, covered - lengths[axis]);
    pads[axis] = more_in_front ? all - all / 2 : all / 2;
    pads[lengths.size() + axis] = all - pads[axis];
  }
  return pads;
}

void SetPadding(const Pads& pads, OpSpec& spec) {
  const size_t axes = pads.size() / 2;
  std::array<int64_t, 2> end = {0, 0};
  for (size_t axis = 0; axis < axes; ++axis) {
    spec.padding[axis] = pads[axis];
    end[axis] = pads[axes + axis];
  }
  spec.padding_end = end == spec.padding ? std::array<int64_t, 2>{-1, -1} : end;
}

Pads PadsOf(const OpSpec& spec, size_t axes) {
  Pads pads(2 * axes);
  for (size_t axis = 0; axis < axes; ++axis) {
    pads[axis] = spec.padding[axis];
    pads[axes + axis] = spec.end_padding(static_cast<int>(axis));
  }
  return pads;
}

// The padding behind that a last, partial window needs.
int64_t RoundedUp(int64_t length, int64_t kernel, int64_t stride, int64_t front, int64_t behind) {
  const int64_t padded = length + front + behind;
  if (padded < kernel) return behind;
  const int64_t last = (padded - kernel + stride - 1) / stride * stride;
  if (last >= length + front) return behind;  // it would see padding alone
  return behind + std::max<int64_t>(0, last + kernel - padded);
}

}  // namespace

absl::Status SetWindow(const onnx::NodeProto& node, const WindowInput& input,
                       std::vector<int64_t> kernel, OpSpec& spec) {
  const Attributes attributes(node);
  kernel = attributes.Ints("kernel_shape", std::move(kernel));
  const size_t axes = kernel.size();
  if (axes < 1 || axes > 2)
    return UnsupportedWindow(absl::StrCat("attribute kernel_shape has ", axes, " axes"));
  const std::vector<int64_t> strides = attributes.Ints("strides", std::vector<int64_t>(axes, 1));
  Pads pads = attributes.Ints("pads", Pads(2 * axes, 0));
  const std::vector<int64_t> dilations =
      attributes.Ints("dilations", std::vector<int64_t>(axes, 1));
  if (strides.size() != axes || pads.size() != 2 * axes || dilations.size() != axes)
    return UnsupportedWindow("attributes of different numbers of axes");
  for (size_t axis = 0; axis < axes; ++axis) {
    for (const int64_t size : {kernel[axis], strides[axis], dilations[axis]}) {
      if (size >= 1 && size <= kMostPadding) continue;
      return UnsupportedWindow(absl::StrCat("a window of ", kernel[axis], " with stride ",
                                            strides[axis], " and dilation ", dilations[axis]));
    }
    spec.kernel[axis] = kernel[axis];
    spec.stride[axis] = strides[axis];
    spec.dilation[axis] = dilations[axis];
  }
  const std::string auto_pad = attributes.Text("auto_pad");
  if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    if (input.lengths.size() != axes || !input.pads.empty())
      return UnsupportedWindow(absl::StrCat("attribute auto_pad, of an input of unknown size"));
    pads = SamePads(spec, input.lengths, auto_pad == "SAME_LOWER");
  } else if (!auto_pad.empty() && auto_pad != "NOTSET" && auto_pad != "VALID") {
    return UnsupportedWindow(absl::StrCat("attribute auto_pad ", auto_pad));
  }
  if (!input.pads.empty()) {
    if (input.pads.size() != pads.size())
      return UnsupportedWindow("padding in front of it of another number of axes");
    for (size_t i = 0; i < pads.size(); ++i) pads[i] += input.pads[i];
  }
  const auto [least, most] = std::minmax_element(pads.begin(), pads.end());
  if (*least < 0 || *most > kMostPadding)
    return UnsupportedWindow(absl::StrCat("attribute pads ", absl::StrJoin(pads, ",")));
  SetPadding(pads, spec);
  return absl::OkStatus();
}

absl::StatusOr<OpSpec> ReadPool(const onnx::NodeProto& node, const WindowInput& input) {
  const Attributes attributes(node);
  OpSpec spec;
  spec.kind = node.op_type() == "MaxPool" ? OpKind::kMaxPool : OpKind::kAvgPool;
  const bool is_mean = spec.kind == OpKind::kAvgPool;
  if (!is_mean && !input.pads.empty())
    return UnsupportedWindow("zeros in front of a maximum, which it would see");
  if (!is_mean && node.output_size() > 1 && !node.output(1).empty())
    return UnsupportedWindow("an output of indices");
  const std::vector<int64_t> dilations = attributes.Ints("dilations", {});
  if (!IsAll(dilations, 1))
    return UnsupportedWindow(absl::StrCat("attribute dilations ", absl::StrJoin(dilations, ",")));
  RUNNEL_RETURN_IF_ERROR(SetWindow(node, input, {}, spec));
  const size_t axes = attributes.Ints("kernel_shape", {}).size();
  const Pads own = attributes.Ints("pads", Pads(2 * axes, 0));
  const bool counts = attributes.Int("count_include_pad", 0) != 0;
  // Zeros of a node in front are values; its own padding is none unless it says so.
  if (!input.pads.empty() && !counts && !IsAll(own, 0))
    return UnsupportedWindow("a mean over padding of two kinds");
  spec.counts_padding = is_mean && spec.is_padded() && (counts || !input.pads.empty());
  if (attributes.Int("ceil_mode", 0) == 0) return spec;
  if (input.lengths.size() != axes)
    return UnsupportedWindow("attribute ceil_mode, of an input of unknown size");
  Pads pads = PadsOf(spec, axes);
  for (size_t axis = 0; axis < axes; ++axis) {
    pads[axes + axis] = RoundedUp(input.lengths[axis], spec.kernel[axis], spec.stride[axis],
                                  pads[axis], pads[axes + axis]);
  }
  // Engines divide by other numbers where a window overhangs padding that counts.
  if (pads != PadsOf(spec, axes) && is_mean && (counts || spec.counts_padding))
    return UnsupportedWindow("attribute ceil_mode with count_include_pad");
  SetPadding(pads, spec);
  return spec;
}

absl::StatusOr<Pads> ReadPads(const onnx::NodeProto& node, const Constant* amounts,
                              const Constant* value) {
  const Attributes attributes(node);
  std::vector<int64_t> pads = attributes.Ints("pads", {});
  if (node.input_size() > 1) {
    if (amounts == nullptr) return UnsupportedWindow("how much it pads is no constant");
    for (const float amount : amounts->values) {
      if (!(amount >= 0 && amount <= static_cast<float>(kMostPadding)))
        return UnsupportedWindow(absl::StrCat("pads of ", amount));
      pads.push_back(static_cast<int64_t>(amount));
    }
  }
  if (IsAll(pads, 0)) return Pads();
  const std::string mode = attributes.Text("mode");
  if (!mode.empty() && mode != "constant")
    return UnsupportedWindow(absl::StrCat("attribute mode ", mode));
  const bool pads_zeros =
      value == nullptr ? attributes.Real("value", 0) == 0 : value->values == std::vector<float>{0};
  if (!pads_zeros) return UnsupportedWindow("pads with what is not 0");
  const size_t rank = pads.size() / 2;
  const bool is_spatial = pads.size() % 2 == 0 && rank > 2 && node.input_size() < 4 &&
                          pads[0] == 0 && pads[1] == 0 && pads[rank] == 0 && pads[rank + 1] == 0;
  if (!is_spatial)
    return UnsupportedWindow(absl::StrCat("pads ", absl::StrJoin(pads, ","),
                                          ", not the axes behind the channels alone"));
  Pads spatial(pads.begin() + 2, pads.begin() + static_cast<int64_t>(rank));
  spatial.insert(spatial.end(), pads.begin() + static_cast<int64_t>(rank) + 2, pads.end());
  return spatial;
}

}  // namespace runnel::import
