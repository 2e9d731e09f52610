#pragma once

// The work of a sub-model, counted from its description: the predictor's encoding of a sub-model.
// AccEPT 3.2 encodes a sub-model as one bit a layer, which ties the predictor to one model. Counts
// of work serve every model, and the batch size is part of them.

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/plan/layer_range.h"

namespace runnel {

// Work of one micro-batch through forward, input-gradient (not where samples enter the model),
// weight-gradient and update.
enum class Work : int {
  kConvMacs = 0,       // convolutions over space and channels
  kPointwiseMacs = 1,  // 1x1 convolutions
  kDepthwiseMacs = 2,  // grouped convolutions
  kLinearMacs = 3,
  kConvElements = 4,         // read and written by convolutions: packing, layouts
  kElementwiseElements = 5,  // read and written by batch norm, activations, dropout, additions
  kPoolElements = 6,
  kParameters = 7,        // trainable, updated once
  kOps = 8,               // operators: the overhead of a call
  kBoundaryElements = 9,  // elements that enter and leave the range
};
inline constexpr int kWorkKinds = 10;

// Assumed cache of one core (between a phone's and a server's), and the prior cost of a byte that
// misses it. The predictor refines that cost for each device.
inline constexpr double kCacheBytes = 4e6;
inline constexpr double kBeyondCacheByteSeconds = 0.1e-9;

using WorkVector = std::array<double, kWorkKinds>;

// [layer]: the work of the layer by itself, without kBoundaryElements, for micro-batches of `batch`
// samples. InvalidArgument as InferShapes.
absl::StatusOr<std::vector<WorkVector>> LayerWork(const ModelSpec& model, int64_t batch);

// Counts of work for any range of one model. A value type.
class ModelWork {
 public:
  // InvalidArgument as InferShapes.
  static absl::StatusOr<ModelWork> Create(const ModelSpec& model, int64_t batch);

  int layers() const { return static_cast<int>(layers_.size()); }
  // The sum over the range's layers. The range must be one of the model.
  WorkVector Of(const LayerRange& range) const;
  // Multiply-accumulates of the range's forward, the x of the FLOPs line.
  double Macs(const LayerRange& range) const;
  // Cache misses of the range that its layers do not have when each runs by itself, in bytes. They
  // make a range slower than the sum of its layers. A loop over m bytes (activations, weights,
  // momentum, gradients) misses about miss(m) = m * m / (m + kCacheBytes) bytes; the result is
  // miss(sum of the layers' m) - sum of miss(m).
  double BytesBeyondCache(const LayerRange& range) const;

 private:
  std::vector<WorkVector> layers_;
  std::vector<double> macs_;
  std::vector<double> bytes_;  // touched by each layer
  std::vector<double>
      boundary_;  // elements of the boundary before layer l; the model's output last
};

// log(1 + count) by kind: the input of the network over counts of work.
std::vector<float> Encoding(const WorkVector& work);

}  // namespace runnel
