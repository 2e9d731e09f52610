#pragma once

// What a sub-model asks of a device, counted from its description: the encoding that the predictor
// sees. AccEPT 3.2 encodes a sub-model as one bit a layer, which ties the predictor to one model;
// these counts serve every model, and the batch size is part of them.

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/base/layer_range.h"
#include "proto/base/model_spec.h"

namespace runnel {

// Work of one micro-batch through forward, input-gradient (not where samples enter the model),
// weight-gradient and update.
enum class Work : int {
  kConvMacs = 0,       // convolutions over space and channels
  kPointwiseMacs = 1,  // 1x1 convolutions
  kDepthwiseMacs = 2,  // grouped convolutions
  kLinearMacs = 3,
  kConvElements = 4,         // read and written by convolutions: packing, layouts
  kElementwiseElements = 5,  // by batch norm, activations, dropout, additions
  kPoolElements = 6,
  kParameters = 7,        // trainable, updated once
  kOps = 8,               // operators: what each call costs
  kBoundaryElements = 9,  // what enters and leaves the range
};
inline constexpr int kWorkKinds = 10;

// Of one core, between a phone's and a server's; what a byte from beyond it costs is each device's
// own, beforehand this.
inline constexpr double kCacheBytes = 4e6;
inline constexpr double kBeyondCacheByteSeconds = 0.1e-9;

using WorkVector = std::array<double, kWorkKinds>;

// The work of each layer by itself, without kBoundaryElements, for micro-batches of `batch`
// samples. InvalidArgument as InferShapes.
absl::StatusOr<std::vector<WorkVector>> LayerWork(const ModelSpec& model, int64_t batch);

// Counts of a model, ready for any range of it. A value type.
class ModelWork {
 public:
  // InvalidArgument as InferShapes.
  static absl::StatusOr<ModelWork> Create(const ModelSpec& model, int64_t batch);

  int layers() const { return static_cast<int>(layers_.size()); }
  // Sums over the range. The range must be one of the model.
  WorkVector Of(const LayerRange& range) const;
  // Multiply-accumulates of the range's forward: what the FLOPs line goes by.
  double Macs(const LayerRange& range) const;
  // Bytes that a range has to fetch from beyond a cache of kCacheBytes and that its layers, each by
  // itself, would find there: what makes a range take longer than its layers' sum. A layer touches
  // its activations, weights, momentum and gradients; of m bytes touched in turn about
  // m * m / (m + cache) come from beyond it.
  double BytesBeyondCache(const LayerRange& range) const;

 private:
  std::vector<WorkVector> layers_;
  std::vector<double> macs_;
  std::vector<double> bytes_;  // touched, by layer
  std::vector<double>
      boundary_;  // elements of the boundary before layer l; the model's output last
};

// log(1 + count) by kind: the network's view.
std::vector<float> Encoding(const WorkVector& work);

}  // namespace runnel
