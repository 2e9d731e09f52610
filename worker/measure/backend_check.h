#pragma once

// Whether a backend computes what `ref` computes. Drivers that get integer products wrong exist;
// nothing that a GPU or DSP computes is believed before this.

#include "absl/status/status.h"
#include "kernels/backends/backend.h"

namespace runnel {

// Trains a small integer network (a convolution and a product) for two steps on the backend and on
// `ref`, and compares losses and weights bit for bit; then runs a small model in INT8, if the
// backend does that, and compares its logits. OK: they are equal. DataLoss: they differ, and where. Unimplemented: the backend has no integer arithmetic. Else the backend's own error.
// Takes what the backend needs to build its kernels, and a few milliseconds.
absl::Status CheckBackend(Backend& backend);

}  // namespace runnel
