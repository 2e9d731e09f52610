#pragma once

// Targets of a weight-gradient's sums: int32 directly, or int64 by way of an int32 area that is
// added to them before it could overflow.

#include "kernels/backends/hexagon/dsp/machine.h"

namespace runnel::hexagon {

// Products of two int8 that an int32 holds, -128 * -128 among them.
inline constexpr uint32_t kMaxInt32Products = (1u << 17) - 1;

class GradientSums {
 public:
  // False: there is no memory.
  bool Begin(Machine& machine, const DspTensor& result);
  int32_t* sums() const { return sums_; }
  bool is_wide() const { return wide_ != nullptr; }
  // Call before this many products more are added to each sum. True: the sums begin anew, so the
  // products overwrite the area.
  bool Expect(uint32_t products);
  // The largest |sum|; `narrow` is that of an int32 result.
  int64_t Finish(int64_t narrow);

 private:
  void Flush();

  int32_t* sums_ = nullptr;
  int64_t* wide_ = nullptr;
  uint32_t count_ = 0;
  uint32_t products_ = 0;
  bool first_ = true;
  bool flushed_ = false;
};

}  // namespace runnel::hexagon
