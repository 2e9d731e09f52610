#pragma once

// What of a codec's error reaches the gradients, by where its tensor crosses and in which direction:
// with the rows' errors (CodecRow::relative_error) the table that plans are charged by until a run
// measures its own (noise_ratios.h). Pure functions.

#include <vector>

#include "absl/types/span.h"
#include "proto/base/ids.h"
#include "proto/base/model/model_spec.h"
#include "proto/base/training/codecs/tensor_error.h"

namespace runnel {

// Added noise = apart * TensorError::apart + alike * TensorError::alike + root * TensorError::root, as
// a share of the noise that mini-batches have. An upper estimate: of what was measured 85 % is below
// it (FIGURES.md, "What codecs add to the gradients' noise, by place").
struct NoiseWeights {
  double apart = 0;
  double alike = 0;
  double root = 0;

  double Of(const TensorError& error) const {
    return apart * error.apart + alike * error.alike + root * error.root;
  }
  friend bool operator==(const NoiseWeights&, const NoiseWeights&) = default;
};

// Where nothing is known of the layers: no place has more.
//
// A gradient's error reaches a weight-gradient as the gradient itself does, through the same sum over
// samples and positions. Samples' errors average out over a mini-batch as its noise does: its size does
// not matter. Where a weight-gradient has one term a sample, behind a linear layer, the share is that
// of the tensor; stages behind the link, which get no error, make it less.
inline constexpr NoiseWeights kGradientNoise = {.apart = 1, .alike = 1};
// An activation's error reaches a gradient by the loss and by the product with it. And of the units
// behind it that pass a gradient or do not, some change sides: their share, of which each changes a
// gradient by all of its length, grows as the error's root.
inline constexpr NoiseWeights kActivationNoise = {.apart = 2, .alike = 2, .root = 0.35};

// By the layer behind which a tensor crosses.
class NoisePlaces {
 public:
  NoisePlaces() = default;  // nothing is known
  // infos: of the model's layers (InferShapes).
  NoisePlaces(const ModelSpec& model, absl::Span<const LayerInfo> infos);

  NoiseWeights At(int layer, Direction direction) const;

 private:
  std::vector<NoiseWeights> forward_;
  std::vector<NoiseWeights> backward_;
};

}  // namespace runnel
