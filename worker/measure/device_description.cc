#include "worker/measure/device_description.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace runnel {
namespace {

// Lines of /proc/cpuinfo that name a processor: x86 says "model name", arm64 "CPU part" and so on,
// boards "Hardware" or "Model".
bool NamesProcessor(absl::string_view line) {
  for (const absl::string_view key :
       {"model name", "CPU implementer", "CPU part", "CPU variant", "Hardware", "Model", "isa"}) {
    if (absl::StartsWith(line, key)) return true;
  }
  return false;
}

std::string ProcessorNames() {
  std::set<std::string> names;  // big and little processors have several
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (NamesProcessor(line)) names.insert(line);
  }
  return absl::StrJoin(names, "\n");
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The lines that say the quotas of this process's control groups of version 1 and 2, as far as there
// are any: "50000 100000" (microseconds of each period), "max 100000", "-1 100000".
std::vector<std::string> QuotaLines() {
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

std::string ProgramFile() {
  struct stat file = {};
  if (stat("/proc/self/exe", &file) != 0) return "";
  return absl::StrCat(int64_t{file.st_size}, " ", int64_t{file.st_mtim.tv_sec}, ".",
                      int64_t{file.st_mtim.tv_nsec});
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

int UsableHostProcessors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

double UsableProcessors() {
  double processors = UsableHostProcessors();
  for (const std::string& line : QuotaLines()) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    double quota = 0, period = 0;
    if (words.size() == 2 && absl::SimpleAtod(words[0], &quota) &&
        absl::SimpleAtod(words[1], &period) && quota > 0 && period > 0) {
      processors = std::min(processors, quota / period);
    }
  }
  return processors;
}

std::string HostProcessorName() {
  std::set<std::string> names;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(fields[0]);
    // Boards with arm64 name the board alone.
    if (fields.size() == 2 && (key == "model name" || key == "Model" || key == "Hardware"))
      names.emplace(absl::StripAsciiWhitespace(fields[1]));
  }
  return names.empty() ? "host processor" : absl::StrJoin(names, ", ");
}

std::string DescribeDevice(const std::string& more) {
  return absl::StrCat("host ", HostName(), "\n", ProcessorNames(), "\nprocessors ",
                      UsableHostProcessors(), "\nquota ", absl::StrJoin(QuotaLines(), ""),
                      "\nprogram ", ProgramFile(), "\n", more);
}

}  // namespace runnel
