#include "worker/measure/device_description.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "proto/base/host/host_processors.h"

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
                      UsableHostProcessors(), "\nquota ", absl::StrJoin(ProcessorQuotas(), ""),
                      "\nprogram ", ProgramFile(), "\n", more);
}

}  // namespace runnel
