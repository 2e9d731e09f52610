#pragma once

// A trace in the form that Perfetto and Chromium's about:tracing read (Trace Event Format): a
// process for each device, a thread for its computing and one for its coding, arrows where a
// micro-batch goes from one stage to the next.

#include <string>

#include "central/records/run_trace.h"

namespace runnel {

// Of long lists of devices each one's first spans only, so that the text has some ten megabytes at
// most; what is left out is said in the process's name. Microseconds count from the window's begin.
std::string ChromeTrace(const RunTrace& trace);

}  // namespace runnel
