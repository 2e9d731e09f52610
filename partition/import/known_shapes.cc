#include "partition/import/known_shapes.h"

namespace runnel::import {

void KnownShapes::SetInput(const std::string& name, const Shape& sample) {
  shapes_.insert_or_assign(name, sample.Prepend(1));
}

const Shape* KnownShapes::Find(const std::string& value) {
  for (; seen_ < ops_.size(); ++seen_) {
    const FlatOp& op = ops_[seen_];
    std::vector<Shape> inputs;
    for (const std::string& input : op.inputs) {
      if (const auto found = shapes_.find(input); found != shapes_.end())
        inputs.push_back(found->second);
    }
    if (inputs.size() != op.inputs.size() || inputs.empty()) continue;
    const absl::StatusOr<Shape> output = InferOutput(op.spec, inputs);
    if (output.ok()) shapes_.insert_or_assign(op.output, *output);
  }
  const auto found = shapes_.find(value);
  return found == shapes_.end() ? nullptr : &found->second;
}

}  // namespace runnel::import
