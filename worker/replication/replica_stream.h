#pragma once

// A stage's state as the bytes that its neighbour is sent: the tensors and momenta of its layers in
// the order of ModelState, then the checksums that its stage made, and the states of its encoders; of
// an encoder that is in a copy which both ends have, only what has changed since. Names, types and
// shapes are not sent: both ends know the model. Neither end holds more than the state itself, a piece
// and what its encoders' states are sent as.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/model/model_state.h"
#include "proto/base/model/number_format.h"
#include "worker/replication/summed_state.h"

namespace runnel {

// Not thread-safe.
class ReplicaWriter {
 public:
  // All tensors of the copy must have their bytes. base: an earlier copy of the same stage that the
  // reader has too, or null.
  explicit ReplicaWriter(std::shared_ptr<const SummedState> copy,
                         const SummedState* base = nullptr);

  int64_t left() const { return left_; }
  // Fills `to`, at most left() bytes, with the next ones.
  void Read(absl::Span<std::byte> to);

 private:
  std::shared_ptr<const SummedState> copy_;
  std::string end_;  // sums and encoders
  std::vector<const std::string*> pieces_;
  size_t piece_ = 0;
  size_t offset_ = 0;  // within it
  int64_t left_ = 0;
};

// Not thread-safe. Useless after an error.
class ReplicaReader {
 public:
  // Reads layers first..last of the model. Memory is taken as bytes arrive. max_encoder_bytes:
  // limit of all encoders together. base: what the writer may have taken changes to, or null.
  // InvalidArgument: the model's shapes do not fit.
  static absl::StatusOr<ReplicaReader> Create(const ModelSpec& model, int first_layer,
                                              int last_layer, const NumberFormat& format,
                                              int64_t max_encoder_bytes,
                                              std::shared_ptr<const SummedState> base = nullptr);

  // InvalidArgument: more than the state has, or sums or encoders that cannot be.
  absl::Status Add(absl::Span<const std::byte> bytes);
  // Whether all of it has arrived.
  bool whole() const { return whole_; }
  // Only when whole(). The sums are as they were sent: nobody has compared them.
  SummedState Take() { return {std::move(state_), std::move(sums_)}; }

 private:
  ReplicaReader(ModelState zeros, int64_t max_encoder_bytes,
                std::shared_ptr<const SummedState> base);
  absl::Status AddEnd(absl::Span<const std::byte> bytes);

  ModelState state_;
  std::shared_ptr<const SummedState> base_;
  // Final bytes of each tensor of state_.
  std::vector<size_t> sizes_;
  size_t tensor_ = 0;
  int64_t max_encoder_bytes_;
  std::string end_;
  StateSums sums_;
  bool whole_ = false;
};

}  // namespace runnel
