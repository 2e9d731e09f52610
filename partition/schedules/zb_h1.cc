#include "partition/schedules/zb_h1.h"

namespace runnel {

std::vector<int64_t> ZbH1Deferred(absl::Span<const int64_t> caps) {
  std::vector<int64_t> deferred;
  for (int64_t cap : caps) deferred.push_back(caps.front() - cap);
  return deferred;
}

}  // namespace runnel
