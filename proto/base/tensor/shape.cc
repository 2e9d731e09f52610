#include "proto/base/tensor/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace runnel {

absl::StatusOr<Shape> Shape::Create(absl::Span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: rank ", dims.size(), " is over ", kMaxRank));
  }
  int64_t elements = 1;
  for (int64_t dim : dims) {
    if (dim < 1)
      return absl::InvalidArgumentError(absl::StrCat("shape: dimension ", dim, " is below 1"));
    if (dim > kMaxElements / elements) {
      return absl::InvalidArgumentError(absl::StrCat("shape: ", absl::StrJoin(dims, "x"),
                                                     " is over ", kMaxElements, " elements"));
    }
    elements *= dim;
  }
  Shape shape;
  shape.dims_.assign(dims.begin(), dims.end());
  return shape;
}

int64_t Shape::elements() const {
  int64_t elements = 1;
  for (int64_t dim : dims_) elements *= dim;
  return elements;
}

Shape Shape::Prepend(int64_t batch) const {
  Shape shape = *this;
  shape.dims_.insert(shape.dims_.begin(), batch);
  return shape;
}

std::string Shape::ToString() const { return absl::StrJoin(dims_, "x"); }

}  // namespace runnel
