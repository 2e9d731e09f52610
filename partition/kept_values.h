#pragma once

// What a layer keeps for its backward where its products are those of codes. Pure functions; any
// thread.

#include <cstdint>

#include "proto/base/model/model_spec.h"
#include "proto/base/tensor/dtype.h"
#include "proto/base/training/recipe_family.h"

namespace runnel {

// How a layer's recipe multiplies codes.
struct CodesOfLayer {
  KeptCodes kept = KeptCodes::kAll;  // not kNone
  int bits = 8;                      // of codes; 4 and fewer lie two a byte
  // The layer has the model's first or last operator with weights (kInner).
  bool is_first = false, is_last = false;
  bool reads_samples = false;  // the model's first layer
};

// Bytes of one micro-batch, of which `info` is made: the codes of each product's input, the FP32
// values that other operators' gradients read, as type `kept` (LayerSpec::stash), a bit of what a ReLU
// alone would read, and what pools and norms note. What a batch norm or the ReLU behind it gives is
// made again from the norm's input, but for kAllBesideNorms. Of a gate that learns, what the options
// that it explores give.
// LayerSpec::recompute: what enters the layer, or its codes, in place of all that is inside.
int64_t KeptBytesWithCodes(const LayerSpec& layer, const LayerInfo& info, DType kept,
                           const CodesOfLayer& codes);

}  // namespace runnel
