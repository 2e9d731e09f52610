#pragma once

// Counts what `operator new` gives in the whole program that this is linked into.

#include <cstdint>

namespace runnel {

// So far. Any thread.
int64_t CountedAllocations();

}  // namespace runnel
