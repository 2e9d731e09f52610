#pragma once

// Numbers and attributes of an ONNX graph. For onnx_graph.cc.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "onnx/onnx_pb.h"
#include "proto/base/model/model_spec.h"

namespace runnel::import {

// Numbers with a shape, as FP32.
struct Constant {
  std::vector<int64_t> dims;
  std::vector<float> values;
  bool is_integral = false;  // integers, whose quotients are cut off
};

// Its numbers as whole ones, cut off; of one that is none, or far beyond any size, the smallest.
inline std::vector<int64_t> WholeNumbersOf(const Constant& constant) {
  constexpr float kLargest = 1e12f;
  std::vector<int64_t> whole;
  for (const float value : constant.values) {
    const bool fits = value >= -kLargest && value <= kLargest;
    whole.push_back(fits ? static_cast<int64_t>(value) : -static_cast<int64_t>(kLargest));
  }
  return whole;
}

// Of float, double, int32, int64 and bool. InvalidArgument: another type, another count than the shape's,
// numbers in another file.
absl::StatusOr<Constant> ReadTensor(const onnx::TensorProto& tensor);

// A node's attributes by name.
class Attributes {
 public:
  explicit Attributes(const onnx::NodeProto& node) : node_(node) {}

  std::vector<int64_t> Ints(absl::string_view name, std::vector<int64_t> otherwise) const {
    const onnx::AttributeProto* found = Find(name);
    if (found == nullptr) return otherwise;
    return {found->ints().begin(), found->ints().end()};
  }
  int64_t Int(absl::string_view name, int64_t otherwise) const {
    const onnx::AttributeProto* found = Find(name);
    return found == nullptr ? otherwise : found->i();
  }
  double Real(absl::string_view name, double otherwise) const {
    const onnx::AttributeProto* found = Find(name);
    return found == nullptr ? otherwise : double{found->f()};
  }
  std::string Text(absl::string_view name) const {
    const onnx::AttributeProto* found = Find(name);
    return found == nullptr ? "" : found->s();
  }
  bool Has(absl::string_view name) const { return Find(name) != nullptr; }

 private:
  const onnx::AttributeProto* Find(absl::string_view name) const {
    for (const onnx::AttributeProto& attribute : node_.attribute()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  }
  const onnx::NodeProto& node_;
};

}  // namespace runnel::import
