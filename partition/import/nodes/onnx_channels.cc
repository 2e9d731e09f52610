#include "partition/import/nodes/onnx_channels.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"

namespace runnel::import {
namespace {

absl::Status UnsupportedPart(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Numbers of an attribute, or of an input, where newer operator sets have them. Larger than any
// size: INT64_MAX stands for the end.
absl::StatusOr<std::vector<int64_t>> NumbersOf(const onnx::NodeProto& node,
                                               const Constants& constants, const char* attribute,
                                               int input) {
  constexpr float kLargest = 1e12f;
  if (input >= node.input_size() || node.input(input).empty())
    return Attributes(node).Ints(attribute, {});
  const Constant* constant = FindConstant(constants, node, input);
  if (constant == nullptr)
    return UnsupportedPart(absl::StrCat("its ", attribute, " are no constants"));
  std::vector<int64_t> numbers;
  for (const float value : constant->values) {
    if (std::isnan(value))
      return UnsupportedPart(absl::StrCat("its ", attribute, " are no numbers"));
    numbers.push_back(static_cast<int64_t>(std::clamp(value, -kLargest, kLargest)));
  }
  return numbers;
}

// Whether sizes are x's axes from `axis` on; one may be -1.
bool AreAxes(absl::Span<const float> sizes, const Shape& x, int axis) {
  if (static_cast<int>(sizes.size()) != x.rank() - axis) return false;
  int open = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && ++open == 1) continue;
    if (sizes[i] != static_cast<float>(x[axis + static_cast<int>(i)])) return false;
  }
  return true;
}

// A batch of one, as it is, or what is left.
bool IsBatchSize(float size) { return size == 1 || size == 0 || size == -1; }

bool HasOneOpen(absl::Span<const float> sizes) {
  return std::count(sizes.begin(), sizes.end(), -1.0f) <= 1;
}

// 0: it makes none.
int64_t GroupsOfReshape(absl::Span<const float> to, const Shape& x) {
  if (x.rank() < 3 || static_cast<int>(to.size()) != x.rank() + 1 || !HasOneOpen(to)) return 0;
  if (!IsBatchSize(to[0]) || !AreAxes(to.subspan(3), x, 2)) return 0;
  const auto channels = static_cast<float>(x[1]);
  const float groups = to[1] == -1 ? channels / to[2] : to[1];
  const float each = to[2] == -1 ? channels / to[1] : to[2];
  if (!(groups >= 1) || !(each >= 1) || groups * each != channels) return 0;
  const auto count = static_cast<int64_t>(groups);
  return static_cast<float>(count) == groups && x[1] % count == 0 ? count : 0;
}

}  // namespace

absl::StatusOr<std::vector<ChannelRange>> ReadSplit(const onnx::NodeProto& node,
                                                    const Constants& constants, const Shape& x) {
  const int64_t axis = Attributes(node).Int("axis", 0);
  if (x.rank() < 2 || (axis != 1 && axis + x.rank() != 1))
    return UnsupportedPart(absl::StrCat("attribute axis ", axis, ", which is not the channels'"));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, NumbersOf(node, constants, "split", 1));
  const int64_t channels = x[1], outputs = node.output_size();
  if (sizes.empty()) {
    const int64_t each = (channels + outputs - 1) / outputs;
    sizes.assign(static_cast<size_t>(outputs), each);
    sizes.back() = channels - each * (outputs - 1);
  }
  std::vector<ChannelRange> ranges;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    if (size < 1 || size > channels - begin) break;
    ranges.push_back({begin, size});
    begin += size;
  }
  if (begin != channels || static_cast<int64_t>(ranges.size()) != outputs ||
      ranges.size() != sizes.size()) {
    return UnsupportedPart(absl::StrCat(outputs, " parts of ", absl::StrJoin(sizes, ","), " of ",
                                        channels, " channels"));
  }
  return ranges;
}

absl::StatusOr<ChannelRange> ReadSlice(const onnx::NodeProto& node, const Constants& constants,
                                       const Shape& x) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<int64_t> starts,
                          NumbersOf(node, constants, "starts", 1));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, NumbersOf(node, constants, "ends", 2));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<int64_t> axes, NumbersOf(node, constants, "axes", 3));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, NumbersOf(node, constants, "steps", 4));
  for (size_t i = axes.size(); i < starts.size() && axes.size() <= i; ++i)
    axes.push_back(static_cast<int64_t>(i));
  if (starts.size() != axes.size() || ends.size() != axes.size())
    return UnsupportedPart("starts, ends and axes of different numbers");
  if (std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step != 1; }))
    return UnsupportedPart(absl::StrCat("steps ", absl::StrJoin(steps, ",")));
  ChannelRange range = {0, x.rank() < 2 ? 0 : x[1]};
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + x.rank() : axes[i];
    if (axis < 0 || axis >= x.rank()) return UnsupportedPart(absl::StrCat("axis ", axes[i]));
    const int64_t size = x[static_cast<int>(axis)];
    const auto place = [size](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
    };
    const int64_t begin = place(starts[i]), end = place(ends[i]);
    if (axis == 1 && begin < end) {
      range = {begin, end - begin};
    } else if (begin != 0 || end != size) {
      return UnsupportedPart(absl::StrCat("axis ", axes[i], " from ", starts[i], " to ", ends[i],
                                          ", which is no part of the channels"));
    }
  }
  return range;
}

bool ChannelShuffles::MakesGroups(absl::Span<const float> to, const Shape& x) {
  return GroupsOfReshape(to, x) > 0;
}

void ChannelShuffles::Begin(const std::string& output, absl::Span<const float> to,
                            const std::string& value, const Shape& x) {
  open_.insert_or_assign(output, Open{{value, GroupsOfReshape(to, x)}, x});
}

absl::Status ChannelShuffles::Turn(const onnx::NodeProto& node) {
  const auto found = open_.find(node.input(0));
  if (found == open_.end()) return UnsupportedPart("of activations, but to shuffle channels");
  std::vector<int64_t> perm = {0, 2, 1};
  for (int axis = 2; axis < found->second.x.rank(); ++axis) perm.push_back(axis + 1);
  if (found->second.shuffle.is_turned || Attributes(node).Ints("perm", {}) != perm)
    return UnsupportedPart("attribute perm, which is no shuffle of channels");
  Open turned = found->second;
  turned.shuffle.is_turned = true;
  open_.insert_or_assign(node.output(0), std::move(turned));
  return absl::OkStatus();
}

absl::StatusOr<ChannelShuffles::Shuffle> ChannelShuffles::End(const std::string& input,
                                                              absl::Span<const float> to) const {
  const Open& open = open_.at(input);
  const bool joins = static_cast<int>(to.size()) == open.x.rank() && HasOneOpen(to) &&
                     IsBatchSize(to[0]) && AreAxes(to.subspan(1), open.x, 1);
  if (joins) return open.shuffle;
  return UnsupportedPart("of channels in groups, to others");
}

}  // namespace runnel::import
