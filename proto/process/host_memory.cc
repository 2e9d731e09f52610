#include "proto/process/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace runnel {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

int64_t FreeOnHost(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  for (std::string unit; file >> key >> kilobytes;) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return kUnknown;
}

// None: not a number, such as "max".
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (!(file >> number) || number < 0) return std::nullopt;
  return number;
}

// Version 2 of control groups: "0::/a/b" names the group; a limit of any group above holds too.
int64_t FreeInGroups(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line, group;
  while (std::getline(file, line)) {
    if (line.rfind("0::", 0) == 0) group = line.substr(3);
  }
  int64_t least = kUnknown;
  while (!group.empty() && group != "/") {
    const std::string folder = root + "/sys/fs/cgroup" + group;
    const std::optional<int64_t> limit = NumberIn(folder + "/memory.max");
    const std::optional<int64_t> used = NumberIn(folder + "/memory.current");
    if (limit.has_value()) least = std::min(least, std::max<int64_t>(0, *limit - used.value_or(0)));
    group.resize(group.find_last_of('/'));
  }
  return least;
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  return std::min(FreeOnHost(root), FreeInGroups(root));
}

}  // namespace runnel
