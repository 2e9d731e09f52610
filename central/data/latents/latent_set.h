#pragma once

// Latents with their labels: the memory that is replayed, and a session's training data, new samples
// first. A file of it is the data set "latents:FILE".

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "central/data/latents/latent_types.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// A file is read and sent whole.
inline constexpr int64_t kMaxLatentBytes = int64_t{1} << 30;

// Value semantics; reading from any thread.
class LatentSet {
 public:
  // type: a row of LatentTypes. shape: of one latent, without the batch. classes: of the model.
  LatentSet(const LatentType* type, Shape shape, int64_t classes)
      : type_(type), shape_(std::move(shape)), classes_(classes) {}

  const LatentType& type() const { return *type_; }
  const Shape& shape() const { return shape_; }
  int64_t classes() const { return classes_; }
  int64_t size() const { return std::ssize(labels_); }
  // Of the latents, without labels.
  int64_t bytes() const { return std::ssize(codes_); }
  int64_t bytes_each() const { return type_->Bytes(shape_.elements()); }
  const std::vector<int32_t>& labels() const { return labels_; }
  // Samples [0, new_samples) are a session's new ones, the others are replayed.
  int64_t new_samples = 0;
  int64_t session = 0;

  // InvalidArgument: a value that is not finite, another number of values, a label out of range.
  absl::Status Add(absl::Span<const float> values, int32_t label);
  // Those samples of another set of the same type and shape, as they are.
  void AddFrom(const LatentSet& other, absl::Span<const int64_t> indices);
  void Decode(int64_t index, absl::Span<float> out) const {
    type_->decode(codes_.data() + index * bytes_each(), out);
  }

  std::string Serialize() const;
  // InvalidArgument says what is wrong with the bytes.
  static absl::StatusOr<LatentSet> Parse(absl::string_view bytes);

  friend bool operator==(const LatentSet&, const LatentSet&) = default;

 private:
  const LatentType* type_;
  Shape shape_;
  int64_t classes_;
  std::vector<int32_t> labels_;
  std::string codes_;
};

}  // namespace runnel
