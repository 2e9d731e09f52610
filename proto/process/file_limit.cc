#include "proto/process/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace runnel {

void RaiseFileLimit() {
  constexpr rlim_t kEnough = 65'536;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t most = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur >= most) return;
  limit.rlim_cur = most;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace runnel
