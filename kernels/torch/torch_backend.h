#pragma once

// The LibTorch backend: FP32 programs on hosts that have LibTorch. Dense convolutions and matrix
// products are LibTorch's (oneDNN, OpenBLAS); depthwise convolutions, normalisation, pooling and
// elementwise operators are own loops.
//
// Activations of rank >= 3 inside a stage lie channels-last; what enters and leaves a stage is
// row-major as its shape says. So every operator sees the same layout wherever the model is cut,
// and the bytes of a result do not depend on the cut. The contents of kStash and kScratch are in
// this private layout: only the Executable that wrote them can read them.

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace runnel {

// threads >= 1: of LibTorch's and OpenBLAS's pools, which belong to the process; the last call
// wins. InvalidArgument otherwise. The first call also replaces LibTorch's CPU allocator (for good;
// it forwards to the former one, see placement.h), so make the backend before other LibTorch work.
absl::StatusOr<std::unique_ptr<Backend>> MakeTorchBackend(int threads);

// Tells glibc to keep freed memory: without it oneDNN's temporaries are mapped and unmapped on
// every call. For the start of a main; it changes malloc for the whole process. Nothing on other C
// libraries.
void TuneAllocatorForTorch();

}  // namespace runnel
