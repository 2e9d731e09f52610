#include "proto/base/host/caches.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace runnel {
namespace {

constexpr char kCpus[] = "/sys/devices/system/cpu";
constexpr int kMostCpus = 1024;
constexpr int kMostCaches = 16;
// Smaller ones would be a cache of another kind, larger ones no cache.
constexpr int64_t kLeastBytes = 1 << 16, kMostBytes = 1 << 26;

// The first word of a small file; none: it cannot be read.
std::optional<std::string> WordIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return word;
}

// "1024K", "2M".
std::optional<int64_t> BytesOf(absl::string_view text) {
  int64_t unit = 1;
  if (absl::ConsumeSuffix(&text, "K")) {
    unit = 1 << 10;
  } else if (absl::ConsumeSuffix(&text, "M")) {
    unit = 1 << 20;
  }
  int64_t count = 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 || count > kMostBytes) return std::nullopt;
  return count * unit;
}

// The processors of "0-3,8": 0, 1, 2, 3, 8. Empty: it cannot be read.
std::set<int> CpusIn(absl::string_view text) {
  std::set<int> cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) return {};
    last = first;
    if (!ends.second.empty() && !absl::SimpleAtoi(ends.second, &last)) return {};
    if (first < 0 || last < first || last >= kMostCpus) return {};
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

// Number of cores among these processors: threads of one core name the same siblings.
int64_t CoresAmong(const std::string& folder, const std::set<int>& cpus) {
  std::set<std::string> cores;
  for (const int cpu : cpus) {
    cores.insert(WordIn(absl::StrCat(folder, "/cpu", cpu, "/topology/thread_siblings_list"))
                     .value_or(absl::StrCat(cpu)));
  }
  return static_cast<int64_t>(cores.size());
}

// Bytes of `cpu`'s second-level cache for each core that shares it.
std::optional<int64_t> SecondLevelOf(const std::string& folder, int cpu) {
  for (int index = 0; index < kMostCaches; ++index) {
    const std::string cache = absl::StrCat(folder, "/cpu", cpu, "/cache/index", index);
    const std::optional<std::string> level = WordIn(cache + "/level");
    if (!level.has_value()) return std::nullopt;
    if (*level != "2" || WordIn(cache + "/type") == "Instruction") continue;
    const std::optional<int64_t> bytes = BytesOf(WordIn(cache + "/size").value_or(""));
    if (!bytes.has_value()) return std::nullopt;
    const std::set<int> sharing =
        CpusIn(WordIn(cache + "/shared_cpu_list").value_or(absl::StrCat(cpu)));
    const int64_t each = *bytes / std::max<int64_t>(1, CoresAmong(folder, sharing));
    return each >= kLeastBytes && each <= kMostBytes ? std::optional(each) : std::nullopt;
  }
  return std::nullopt;
}

std::atomic<int64_t> assumed_bytes{0};

}  // namespace

int64_t ReadSecondLevelBytes(const std::string& folder) {
  std::optional<int64_t> least;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    if (!WordIn(absl::StrCat(folder, "/cpu", cpu, "/cache/index0/level")).has_value()) {
      if (cpu > 0) break;
      continue;  // processor 0 may be switched off
    }
    const std::optional<int64_t> bytes = SecondLevelOf(folder, cpu);
    if (bytes.has_value()) least = std::min(least.value_or(*bytes), *bytes);
  }
  return least.value_or(kTunedSecondLevelBytes);
}

int64_t SecondLevelBytes() {
  if (const int64_t assumed = assumed_bytes.load(); assumed > 0) return assumed;
  static const int64_t bytes = ReadSecondLevelBytes(kCpus);
  return bytes;
}

void AssumeSecondLevelBytes(int64_t bytes) { assumed_bytes = bytes; }

}  // namespace runnel
