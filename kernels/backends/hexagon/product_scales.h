#pragma once

// The host's part in products that rescale their own sums (kInt8ConvForwardRescaled and the like):
// what they are rounded by, and what becomes of the scales that they keep. The policy is
// proto/base/model/rescale.h.

#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/hexagon/op_list.h"
#include "kernels/backends/hexagon/shared_memory.h"
#include "kernels/ir/program.h"
#include "proto/base/model/rescale.h"

namespace runnel::hexagon {

// For one executable, whose program and memory outlive it. One thread.
class ProductScales {
 public:
  ProductScales(const Program& program, std::shared_ptr<SharedMemory> memory);

  // Before a run. ResourceExhausted.
  absl::Status Open();
  // Prepares an instruction that rescales its sums before it is submitted. `scale`: the kept one,
  // or null.
  void Begin(const Instruction& instruction, KeptScale* scale, DspOp& op);
  // Takes the statistics after it is done. Unavailable (LostBackendOf): they are impossible.
  absl::Status Finish(const Instruction& instruction, KeptScale* scale);

 private:
  // The place for the DSP's statistics, and for products without a kept scale the number of right
  // guesses of the shift.
  struct Product {
    uint32_t slot = 0;
    int64_t elements = 0;  // elements of the result
    bool measured = false;
    int32_t shift = 0;
    int32_t misses = 0;  // recent share, of 256
  };

  const std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<Memory> seen_;  // DspSums by slot
  std::map<const Instruction*, Product> products_;
};

}  // namespace runnel::hexagon
