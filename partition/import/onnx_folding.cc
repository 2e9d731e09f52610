#include "partition/import/onnx_folding.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace runnel::import {
namespace {

using Inputs = absl::Span<const Constant* const>;

absl::Status NotFolded() { return absl::InvalidArgumentError("of constants"); }

Constant List(std::vector<float> values) {
  return {{static_cast<int64_t>(values.size())}, std::move(values)};
}

// Cast, Squeeze and Unsqueeze of a list or a number: the numbers stay.
absl::StatusOr<Constant> Reshaped(absl::string_view type, const Constant& input) {
  Constant result = input;
  if (type == "Unsqueeze" && input.dims.empty()) result.dims = {1};
  if (type == "Squeeze" && input.dims == std::vector<int64_t>{1}) result.dims = {};
  const bool is_same = type == "Cast";
  if (!is_same && result.dims == input.dims) return NotFolded();
  return result;
}

absl::StatusOr<Constant> Concatenated(Inputs inputs) {
  std::vector<float> values;
  for (const Constant* input : inputs) {
    if (input->dims.size() != 1) return NotFolded();
    values.insert(values.end(), input->values.begin(), input->values.end());
  }
  return List(std::move(values));
}

absl::StatusOr<Constant> Gathered(Inputs inputs) {
  if (inputs.size() != 2 || inputs[0]->dims.size() != 1 || inputs[1]->dims.size() > 1)
    return NotFolded();
  const auto count = static_cast<float>(inputs[0]->values.size());
  Constant result{inputs[1]->dims, {}};
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
  Constant result{(a->dims.size() >= b->dims.size() ? a : b)->dims, {}};
  for (size_t i = 0; i < count; ++i) {
    const float x = a->values[a->values.size() == 1 ? 0 : i];
    const float y = b->values[b->values.size() == 1 ? 0 : i];
    result.values.push_back(type == "Add"   ? x + y
                            : type == "Sub" ? x - y
                            : type == "Mul" ? x * y
                                            : x / y);
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
  if (type == "Cast" || type == "Unsqueeze" || type == "Squeeze") return Reshaped(type, *inputs[0]);
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
