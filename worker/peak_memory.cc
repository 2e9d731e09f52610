#include "worker/peak_memory.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace runnel {

// The system's own figure for a process (getrusage) begins with what its parent held when it
// started this one: central, with a data set. The kernel's status page has the program's.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kibibytes = 0;
    if (word == "VmHWM:" && status >> kibibytes) return kibibytes * 1024;
  }
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace runnel
