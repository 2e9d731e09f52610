#pragma once

// What a layer keeps for its backward where its products are those of codes. Pure functions; any
// thread.

#include <cstdint>

#include "proto/base/model/model_spec.h"
#include "proto/base/tensor/dtype.h"

namespace runnel {

// Bytes of one micro-batch, of which `info` is made: the codes of each product's input, the FP32
// values that other operators' gradients read, as type `kept` (LayerSpec::stash), and what pools and
// norms note. What a batch norm or the ReLU behind it gives is made again from the norm's input.
int64_t KeptBytesWithCodes(const LayerSpec& layer, const LayerInfo& info, DType kept);

}  // namespace runnel
