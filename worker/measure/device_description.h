#pragma once

// Facts that the speed of this process depends on, beside its work.

#include <string>

namespace runnel {

// Host, processors by their names and how many of them this process may use, the quota of its
// control groups, the program file (size and time of its last change) and `more` of the caller, a
// line each. Equal texts: times measured then hold now. Reads /proc and /sys; what cannot be read
// is left out.
std::string DescribeDevice(const std::string& more);

// The host's processor as the kernel names it: "AMD EPYC 9R45"; of several kinds all, or "host
// processor".
std::string HostProcessorName();

}  // namespace runnel
