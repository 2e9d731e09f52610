#pragma once

// Random tensors for measurements. Kernels can be faster on zeros than on the values of a training,
// and integer training stops on values that repeat. The same at every call; any thread.

#include <cstdint>

#include "proto/base/model/model_state.h"
#include "proto/base/model/number_format.h"
#include "proto/base/tensor/payload.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// Uniform in [-0.5, 0.5), FP32.
Payload RandomTensor(BufferPool& pool, int64_t elements, uint64_t stream);

// A boundary tensor: floats as RandomTensor, or mantissas of all sizes with their exponent, and
// neutral values beside it.
Payload RandomBoundary(BufferPool& pool, const NumberFormat& format, Direction direction,
                       const Shape& shape, uint64_t stream);

// Labels in [0, classes), or tokens, others for each micro-batch: INT8 training fits labels that repeat within
// a burst, after which all gradients are zero and cheaper to apply than in training.
Payload RandomLabels(BufferPool& pool, int64_t samples, int64_t classes, uint64_t micro_batch);

// Sets weights and scales; other tensors stay.
void FillWeights(TensorData& tensor, uint64_t stream);

}  // namespace runnel
