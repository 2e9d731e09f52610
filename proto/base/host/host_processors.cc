#include "proto/base/host/host_processors.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::vector<std::string> ProcessorQuotas() {
  std::vector<std::string> quotas;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::string& path = fields[2];
    if (fields[1].empty()) {
      quotas.push_back(FirstLine(absl::StrCat("/sys/fs/cgroup", path, "/cpu.max")));
    } else if (absl::StrContains(absl::StrCat(",", fields[1], ","), ",cpu,")) {
      const std::string folder = absl::StrCat("/sys/fs/cgroup/", fields[1], path);
      quotas.push_back(absl::StrCat(FirstLine(folder + "/cpu.cfs_quota_us"), " ",
                                    FirstLine(folder + "/cpu.cfs_period_us")));
    }
  }
  return quotas;
}

int UsableHostProcessors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

double UsableProcessors() {
  double processors = UsableHostProcessors();
  for (const std::string& line : ProcessorQuotas()) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    double quota = 0, period = 0;
    if (words.size() == 2 && absl::SimpleAtod(words[0], &quota) &&
        absl::SimpleAtod(words[1], &period) && quota > 0 && period > 0) {
      processors = std::min(processors, quota / period);
    }
  }
  return processors;
}

}  // namespace runnel
