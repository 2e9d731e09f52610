#pragma once

// Which processors of its host this process may use. Any thread. Reads /proc and /sys; what cannot be
// read is left out.

#include <string>
#include <vector>

namespace runnel {

// The lines that say the quotas of this process's control groups of version 1 and 2, as far as there
// are any: "50000 100000" (microseconds of each period), "max 100000", "-1 100000".
std::vector<std::string> ProcessorQuotas();
// Number of the host's processors that this process may use; 0: not known.
int UsableHostProcessors();
// The same, or the quota of this process's control groups, where that is less.
double UsableProcessors();

}  // namespace runnel
