#pragma once

// LibTorch's FP32 training step as a peer: functional operators, autograd, SGD with momentum
// (tests/kernels/torch_oracle.h).

#include <memory>

#include "absl/status/statusor.h"
#include "tests/bench/bench_kernels_training.h"

namespace runnel::bench {

// For the start of main: keeps memory that LibTorch frees (the loops are up to a fifth faster).
void TuneForTorch(int threads);

// Samples outlive the trainer.
absl::StatusOr<std::unique_ptr<Trainer>> MakeTorchTrainer(const ModelSpec& model,
                                                          bool channels_last,
                                                          const Samples& samples);

}  // namespace runnel::bench
