#pragma once

// Large areas on huge pages, where the system leaves the choice to programs. Training streams
// through hundreds of megabytes a step; with 4 KiB pages a part of the time is spent on address
// translation.

#include <cstddef>
#include <cstdint>

namespace runnel {

// Alignment of an area of this many bytes: 2 MiB for large ones, else 64 B.
size_t AreaAlignment(int64_t bytes);

// Asks for huge pages under a large area that was just allocated; nothing happens to small ones,
// and where the system has none. Any thread.
void AdviseHugePages(void* area, int64_t bytes);

}  // namespace runnel
