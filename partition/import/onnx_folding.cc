#include "partition/import/onnx_folding.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace runnel::import {
namespace {

using Inputs = absl::Span<const Constant* const>;

constexpr int64_t kMostGathered = int64_t{1} << 26;
constexpr float kMostCounted = 65536;

absl::Status NotFolded() { return absl::InvalidArgumentError("of constants"); }

Constant List(std::vector<float> values, bool is_integral) {
  return {{static_cast<int64_t>(values.size())}, std::move(values), is_integral};
}

Constant Cast(const onnx::NodeProto& node, Constant input) {
  const int64_t to = Attributes(node).Int("to", onnx::TensorProto::FLOAT);
  input.is_integral = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32;
  if (to == onnx::TensorProto::BOOL) {
    input.is_integral = true;
    for (float& value : input.values) value = value != 0 ? 1 : 0;
    return input;
  }
  if (!input.is_integral) return input;
  for (float& value : input.values) value = std::trunc(value);
  return input;
}

// Squeeze and Unsqueeze: the numbers stay.
absl::StatusOr<Constant> Reshaped(const onnx::NodeProto& node, Inputs inputs) {
  Constant result = *inputs[0];
  const bool adds = node.op_type() == "Unsqueeze";
  std::vector<int64_t> axes = Attributes(node).Ints("axes", {});
  if (inputs.size() > 1) axes = WholeNumbersOf(*inputs[1]);
  if (axes.empty()) axes = {0};
  const auto rank = static_cast<int64_t>(result.dims.size() + (adds ? axes.size() : 0));
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  std::sort(axes.begin(), axes.end());
  if (!adds) std::reverse(axes.begin(), axes.end());
  for (const int64_t axis : axes) {
    const auto size = static_cast<int64_t>(result.dims.size());
    const bool fits = axis >= 0 && (adds ? axis <= size : axis < size && result.dims[axis] == 1);
    if (!fits || size > 8) return NotFolded();
    if (adds) {
      result.dims.insert(result.dims.begin() + axis, 1);
    } else {
      result.dims.erase(result.dims.begin() + axis);
    }
  }
  return result;
}

absl::StatusOr<Constant> Concatenated(Inputs inputs) {
  std::vector<float> values;
  for (const Constant* input : inputs) {
    if (input->dims.size() != 1) return NotFolded();
    values.insert(values.end(), input->values.begin(), input->values.end());
  }
  const bool is_integral = std::all_of(inputs.begin(), inputs.end(),
                                       [](const Constant* input) { return input->is_integral; });
  return List(std::move(values), is_integral);
}

// Numbers of a list, or rows of a table.
absl::StatusOr<Constant> Gathered(const onnx::NodeProto& node, Inputs inputs) {
  if (inputs.size() != 2 || inputs[0]->dims.empty() || Attributes(node).Int("axis", 0) != 0 ||
      inputs[0]->dims.size() + inputs[1]->dims.size() > 4)
    return NotFolded();
  const int64_t rows = inputs[0]->dims[0];
  const auto width = static_cast<int64_t>(inputs[0]->values.size()) / std::max<int64_t>(rows, 1);
  if (width * static_cast<int64_t>(inputs[1]->values.size()) > kMostGathered) return NotFolded();
  Constant result{inputs[1]->dims, {}, inputs[0]->is_integral};
  result.dims.insert(result.dims.end(), inputs[0]->dims.begin() + 1, inputs[0]->dims.end());
  for (const float index : inputs[1]->values) {
    const float place = index < 0 ? index + static_cast<float>(rows) : index;
    if (!(place >= 0 && place < static_cast<float>(rows))) return NotFolded();
    const auto row = inputs[0]->values.begin() + static_cast<int64_t>(place) * width;
    result.values.insert(result.values.end(), row, row + width);
  }
  return result;
}

float Result(absl::string_view type, float x, float y) {
  if (type == "Add") return x + y;
  if (type == "Sub") return x - y;
  if (type == "Mul") return x * y;
  if (type == "Div") return x / y;
  return (type == "Equal" ? x == y : type == "Less" ? x < y : x > y) ? 1 : 0;
}

// Of equal shapes, or of numbers and one number.
absl::StatusOr<Constant> Computed(absl::string_view type, Inputs inputs) {
  if (inputs.size() != 2) return NotFolded();
  const auto& [a, b] = std::pair(inputs[0], inputs[1]);
  const bool is_one = a->values.size() == 1 || b->values.size() == 1;
  if (!is_one && a->dims != b->dims) return NotFolded();
  const bool compares = type == "Equal" || type == "Less" || type == "Greater";
  const Constant& larger =
      a->values.size() > b->values.size() ||
              (a->values.size() == b->values.size() && a->dims.size() >= b->dims.size())
          ? *a
          : *b;
  Constant result{larger.dims, {}, compares || (a->is_integral && b->is_integral)};
  for (size_t i = 0; i < larger.values.size(); ++i) {
    const float x = a->values[a->values.size() == 1 ? 0 : i];
    const float y = b->values[b->values.size() == 1 ? 0 : i];
    result.values.push_back(Result(type, x, y));
    if (result.is_integral && type == "Div")
      result.values.back() = std::trunc(result.values.back());
  }
  return result;
}

// From the first number to before the second one.
absl::StatusOr<Constant> Counted(Inputs inputs) {
  if (inputs.size() != 3) return NotFolded();
  for (const Constant* input : inputs) {
    if (input->values.size() != 1) return NotFolded();
  }
  const float begin = inputs[0]->values[0], end = inputs[1]->values[0], by = inputs[2]->values[0];
  if (!(by > 0) || !((end - begin) / by <= kMostCounted)) return NotFolded();
  std::vector<float> values;
  for (float value = begin; value < end; value = begin + by * static_cast<float>(values.size()))
    values.push_back(value);
  return List(std::move(values), inputs[0]->is_integral && inputs[2]->is_integral);
}

// Numbers of two constants, by a third one.
absl::StatusOr<Constant> Chosen(Inputs inputs) {
  if (inputs.size() != 3) return NotFolded();
  const Constant& condition = *inputs[0];
  for (const Constant* input : inputs) {
    if (input->values.size() != 1 && input->dims != condition.dims) return NotFolded();
  }
  Constant result{condition.dims, {}, inputs[1]->is_integral && inputs[2]->is_integral};
  for (size_t i = 0; i < condition.values.size(); ++i) {
    const std::vector<float>& from = inputs[condition.values[i] != 0 ? 1 : 2]->values;
    result.values.push_back(from[from.size() == 1 ? 0 : i]);
  }
  return result;
}

constexpr float kMostNumbers = 1024;  // of lists that are computed; weights are not

// As many equal numbers as the list of sizes says.
absl::StatusOr<Constant> Repeated(const onnx::NodeProto& node, const Constant& sizes) {
  Constant result{{}, {}, false};
  float count = 1;
  for (const float size : sizes.values) {
    if (!(size >= 0 && size <= kMostNumbers)) return NotFolded();
    result.dims.push_back(static_cast<int64_t>(size));
    count *= size;
  }
  if (count > kMostNumbers) return NotFolded();
  float value = 0;
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.name() != "value") continue;
    absl::StatusOr<Constant> given = ReadTensor(attribute.t());
    if (!given.ok() || given->values.size() != 1) return NotFolded();
    value = given->values[0];
    result.is_integral = given->is_integral;
  }
  result.values.assign(static_cast<size_t>(count), value);
  return result;
}

// To sizes, of which one may be -1.
absl::StatusOr<Constant> WithSizes(Constant input, const Constant& sizes) {
  int64_t known = 1;
  const auto count = static_cast<int64_t>(input.values.size());
  input.dims.clear();
  for (const float size : sizes.values) {
    if (!(size == -1 || (size >= 1 && size <= static_cast<float>(count)))) return NotFolded();
    input.dims.push_back(static_cast<int64_t>(size));
    if (size != -1) known *= input.dims.back();
    if (known > count) return NotFolded();
  }
  for (int64_t& dim : input.dims) {
    if (dim != -1) continue;
    dim = count / known;
    known *= dim;
  }
  if (known != count || std::count(sizes.values.begin(), sizes.values.end(), -1.0f) > 1)
    return NotFolded();
  return input;
}

// Part of one axis, forwards or backwards.
struct Cut {
  float begin = 0, end = 0, step = 1;
  int64_t axis = 0;
};

absl::StatusOr<Constant> CutAlong(const Constant& input, const Cut& cut) {
  const auto rank = static_cast<int64_t>(input.dims.size());
  const int64_t axis = cut.axis < 0 ? cut.axis + rank : cut.axis;
  if (axis < 0 || axis >= rank || (cut.step != 1 && cut.step != -1) || std::isnan(cut.begin) ||
      std::isnan(cut.end))
    return NotFolded();
  const auto at = static_cast<size_t>(axis);
  const int64_t size = input.dims[at];
  const bool backwards = cut.step < 0;
  const auto place = [&](float value) {
    const auto last = static_cast<float>(size);
    const float from_front = value < 0 ? value + last : value;
    return static_cast<int64_t>(
        std::clamp(from_front, backwards ? -1.0f : 0.0f, backwards ? last - 1 : last));
  };
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < at; ++i) outer *= input.dims[i];
  for (size_t i = at + 1; i < input.dims.size(); ++i) inner *= input.dims[i];
  Constant result{input.dims, {}, input.is_integral};
  const int64_t begin = place(cut.begin), end = place(cut.end);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t row = begin; backwards ? row > end : row < end; row += backwards ? -1 : 1) {
      const auto from = input.values.begin() + (o * size + row) * inner;
      result.values.insert(result.values.end(), from, from + inner);
    }
  }
  result.dims[at] = std::max<int64_t>(backwards ? begin - end : end - begin, 0);
  return result;
}

absl::StatusOr<Constant> Sliced(Inputs inputs) {
  if (inputs.size() < 3 || inputs[0]->values.empty()) return NotFolded();
  const size_t cuts = inputs[1]->values.size();
  for (size_t i = 2; i < inputs.size(); ++i) {
    if (inputs[i]->values.size() != cuts) return NotFolded();
  }
  Constant result = *inputs[0];
  for (size_t i = 0; i < cuts; ++i) {
    const float axis = inputs.size() > 3 ? inputs[3]->values[i] : static_cast<float>(i);
    if (!(std::abs(axis) < 16)) return NotFolded();
    const Cut cut = {inputs[1]->values[i], inputs[2]->values[i],
                     inputs.size() > 4 ? inputs[4]->values[i] : 1, static_cast<int64_t>(axis)};
    absl::StatusOr<Constant> next = CutAlong(result, cut);
    if (!next.ok() || next->values.empty()) return NotFolded();
    result = *std::move(next);
  }
  return result;
}

}  // namespace

Constant TransposedMatrix(const Constant& matrix) {
  const auto rows = static_cast<size_t>(matrix.dims[0]);
  const auto columns = static_cast<size_t>(matrix.dims[1]);
  Constant result{{matrix.dims[1], matrix.dims[0]}, std::vector<float>(matrix.values.size())};
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c)
      result.values[c * rows + r] = matrix.values[r * columns + c];
  }
  return result;
}

absl::StatusOr<Constant> Fold(const onnx::NodeProto& node, Inputs inputs) {
  const std::string& type = node.op_type();
  if (type == "Cast") return Cast(node, *inputs[0]);
  if (type == "Unsqueeze" || type == "Squeeze") return Reshaped(node, inputs);
  if (type == "ConstantOfShape") return Repeated(node, *inputs[0]);
  if (type == "Reshape" && inputs.size() == 2) return WithSizes(*inputs[0], *inputs[1]);
  if (type == "Slice") return Sliced(inputs);
  if (type == "Concat") return Concatenated(inputs);
  if (type == "Gather") return Gathered(node, inputs);
  if (type == "Range") return Counted(inputs);
  if (type == "Where") return Chosen(inputs);
  static constexpr absl::string_view kOfTwo[] = {"Add",   "Sub",  "Mul",    "Div",
                                                 "Equal", "Less", "Greater"};
  if (std::find(std::begin(kOfTwo), std::end(kOfTwo), type) != std::end(kOfTwo))
    return Computed(type, inputs);
  const bool turns_matrix = type == "Transpose" && inputs[0]->dims.size() == 2 &&
                            Attributes(node).Ints("perm", {1, 0}) == std::vector<int64_t>{1, 0};
  if (turns_matrix) return TransposedMatrix(*inputs[0]);
  return NotFolded();
}

}  // namespace runnel::import
