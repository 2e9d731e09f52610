#include "worker/heap_limits.h"

#include <cstdlib>  // says whose C library it is

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace runnel {

void LimitHeaps() {
#if defined(__GLIBC__)
  constexpr int kMappedBytes = 256 << 10;
  constexpr int kHeaps = 2;
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  mallopt(M_TRIM_THRESHOLD, kMappedBytes);
  mallopt(M_ARENA_MAX, kHeaps);
#endif
}

void TrimHeaps() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace runnel
