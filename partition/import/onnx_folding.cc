#include "partition/import/onnx_folding.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace runnel::import {
namespace {

using Inputs = absl::Span<const Constant* const>;

absl::Status NotFolded() { return absl::InvalidArgumentError("of constants"); }

Constant List(std::vector<float> values, bool is_integral) {
  return {{static_cast<int64_t>(values.size())}, std::move(values), is_integral};
}

Constant Cast(const onnx::NodeProto& node, Constant input) {
  const int64_t to = Attributes(node).Int("to", onnx::TensorProto::FLOAT);
  input.is_integral = to == onnx::TensorProto::INT64 || to == onnx::TensorProto::INT32;
  if (!input.is_integral) return input;
  for (float& value : input.values) value = std::trunc(value);
  return input;
}

// Squeeze and Unsqueeze of a list or a number: the numbers stay.
absl::StatusOr<Constant> Reshaped(absl::string_view type, const Constant& input) {
  Constant result = input;
  if (type == "Unsqueeze" && input.dims.empty()) result.dims = {1};
  if (type == "Squeeze" && input.dims == std::vector<int64_t>{1}) result.dims = {};
  if (result.dims == input.dims) return NotFolded();
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

absl::StatusOr<Constant> Gathered(Inputs inputs) {
  if (inputs.size() != 2 || inputs[0]->dims.size() != 1 || inputs[1]->dims.size() > 1)
    return NotFolded();
  const auto count = static_cast<float>(inputs[0]->values.size());
  Constant result{inputs[1]->dims, {}, inputs[0]->is_integral};
  for (const float index : inputs[1]->values) {
    const float place = index < 0 ? index + count : index;
    if (!(place >= 0 && place < count)) return NotFolded();
    result.values.push_back(inputs[0]->values[static_cast<size_t>(place)]);
  }
  return result;
}

absl::StatusOr<Constant> Computed(absl::string_view type, Inputs inputs) {
  if (inputs.size() != 2) return NotFolded();
  const auto& [a, b] = std::pair(inputs[0], inputs[1]);
  const size_t count = std::max(a->values.size(), b->values.size());
  const auto fits = [count](const Constant& c) {
    return c.dims.size() <= 1 && (c.values.size() == count || c.values.size() == 1);
  };
  if (!fits(*a) || !fits(*b)) return NotFolded();
  Constant result{
      (a->dims.size() >= b->dims.size() ? a : b)->dims, {}, a->is_integral && b->is_integral};
  for (size_t i = 0; i < count; ++i) {
    const float x = a->values[a->values.size() == 1 ? 0 : i];
    const float y = b->values[b->values.size() == 1 ? 0 : i];
    result.values.push_back(type == "Add"   ? x + y
                            : type == "Sub" ? x - y
                            : type == "Mul" ? x * y
                                            : x / y);
    if (result.is_integral && type == "Div")
      result.values.back() = std::trunc(result.values.back());
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

// Rows of a list or a matrix, forwards or backwards.
absl::StatusOr<Constant> Sliced(Inputs inputs) {
  if (inputs.size() < 3 || inputs[0]->dims.empty() || inputs[0]->dims[0] < 1) return NotFolded();
  const int64_t rows = inputs[0]->dims[0];
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i]->values.size() != 1 || std::isnan(inputs[i]->values[0])) return NotFolded();
  }
  const auto number = [&](size_t input, float otherwise) {
    return input < inputs.size() ? inputs[input]->values[0] : otherwise;
  };
  const float step = number(4, 1);
  if (number(3, 0) != 0 || (step != 1 && step != -1)) return NotFolded();
  const bool backwards = step < 0;
  const auto place = [&](float at) {
    const float last = static_cast<float>(rows);
    const float from_front = at < 0 ? at + last : at;
    return static_cast<int64_t>(
        std::clamp(from_front, backwards ? -1.0f : 0.0f, backwards ? last - 1 : last));
  };
  const auto width = static_cast<int64_t>(inputs[0]->values.size()) / rows;
  Constant result{inputs[0]->dims, {}, inputs[0]->is_integral};
  result.dims[0] = 0;
  const int64_t end = place(number(2, 0));
  for (int64_t at = place(number(1, 0)); backwards ? at > end : at < end;
       at += backwards ? -1 : 1) {
    const auto row = inputs[0]->values.begin() + at * width;
    result.values.insert(result.values.end(), row, row + width);
    ++result.dims[0];
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
  if (type == "Unsqueeze" || type == "Squeeze") return Reshaped(type, *inputs[0]);
  if (type == "ConstantOfShape") return Repeated(node, *inputs[0]);
  if (type == "Reshape" && inputs.size() == 2) return WithSizes(*inputs[0], *inputs[1]);
  if (type == "Slice") return Sliced(inputs);
  if (type == "Concat") return Concatenated(inputs);
  if (type == "Gather") return Gathered(inputs);
  if (type == "Add" || type == "Sub" || type == "Mul" || type == "Div")
    return Computed(type, inputs);
  const bool turns_matrix = type == "Transpose" && inputs[0]->dims.size() == 2 &&
                            Attributes(node).Ints("perm", {1, 0}) == std::vector<int64_t>{1, 0};
  if (turns_matrix) return TransposedMatrix(*inputs[0]);
  return NotFolded();
}

}  // namespace runnel::import
