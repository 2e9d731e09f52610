#include "worker/peak_memory.h"

#include <sys/resource.h>

namespace runnel {

int64_t PeakResidentBytes() {
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace runnel
