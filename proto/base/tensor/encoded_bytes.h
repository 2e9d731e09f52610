#pragma once

// Size of a tensor on a link, known before it exists: the sender and the planner use the same
// function, so that plan and wire cannot disagree.

#include <functional>

#include "proto/base/ids.h"
#include "proto/base/tensor/shape.h"

namespace runnel {

// Payload bytes of one frame that carries an FP32 tensor of this shape; the frame header is not
// counted.
using EncodedBytesFn = std::function<Bytes(const Shape& shape)>;

// Bytes that each end of a link keeps of a data set of `samples` samples, whose tensors on the link
// have this shape. Null: nothing.
using KeptBytesFn = std::function<int64_t(const Shape& shape, int64_t samples)>;

// Bytes of a data frame's fixed header (proto/transport/link/frame.h).
inline constexpr int64_t kFrameHeaderBytes = 64;

}  // namespace runnel
