#pragma once

// The stored plan of a program's packed weights (eviction_plan.h): made anew when there is another
// amount of memory for them.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kernels/backends/hexagon/eviction_plan.h"
#include "kernels/backends/hexagon/op_list.h"
#include "kernels/ir/program.h"

namespace runnel::hexagon {

// For one executable, whose program outlives it. One thread.
class WeightPlaces {
 public:
  explicit WeightPlaces(const Program& program);

  // packed_bytes: that packed weights may take from now on.
  void PlanFor(uint32_t packed_bytes);
  uint32_t kept_bytes() const { return plan_.kept_bytes; }
  // Gives the operation's packed weights their place, if they have one.
  void Assign(DspOp& op) const;

 private:
  using Key = std::pair<uint32_t, DspCode>;  // DspOp::packed_key, and what packs them

  std::vector<uint32_t> regions_;   // packed bytes, as a step uses them
  std::map<Key, size_t> numbers_;   // in regions_
  uint32_t planned_for_bytes_ = 0;  // 0: nothing is planned yet
  EvictionPlan plan_;
};

}  // namespace runnel::hexagon
