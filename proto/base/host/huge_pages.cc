#include "proto/base/host/huge_pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace runnel {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kLarge = 2 * kHugePage;

}  // namespace

size_t AreaAlignment(int64_t bytes) { return bytes >= kLarge ? kHugePage : 64; }

void AdviseHugePages(void* area, int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // A failure only means small pages.
  if (bytes >= kLarge) madvise(area, static_cast<size_t>(bytes), MADV_HUGEPAGE);
#else
  static_cast<void>(area);
  static_cast<void>(bytes);
#endif
}

}  // namespace runnel
