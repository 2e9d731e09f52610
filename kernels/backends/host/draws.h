#pragma once

// The draws by which grids of whole tensors round. One thread.

#include <array>
#include <cstdint>

#include "kernels/ir/program.h"
#include "kernels/ir/step_context.h"
#include "proto/base/random.h"

namespace runnel::host {

// Draws in [0, 1) of elements that are asked for in turn.
class Draws {
 public:
  Draws(const Instruction& instruction, const StepContext& context, RandomPurpose purpose,
        int stream = 0)
      : Draws(instruction, context.run_seed, purpose, stream, context.sequence.value()) {}
  Draws(const Instruction& instruction, uint64_t seed, RandomPurpose purpose, int stream,
        int64_t sequence)
      : random_(seed, purpose,
                static_cast<uint64_t>(instruction.layer) * kMaxOpsPerLayer +
                    static_cast<uint64_t>(instruction.op) + (static_cast<uint64_t>(stream) << 32),
                static_cast<uint64_t>(sequence)) {}

  float Next() {
    if (at_ % 4 == 0) block_ = random_.Block(at_ / 4);
    return static_cast<float>(block_[at_++ % 4] >> 12) * 0x1p-20f;
  }

 private:
  const CounterRandom random_;
  std::array<uint32_t, 4> block_ = {};
  uint64_t at_ = 0;
};

}  // namespace runnel::host
