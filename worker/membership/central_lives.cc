#include "worker/membership/central_lives.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr int64_t kMostBytes = 1 << 20;

}  // namespace

// A line a run: its highest life, and its name, escaped.
CentralLives::CentralLives(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  const absl::StatusOr<std::string> text = ReadWholeFile(path_, kMostBytes);
  if (!text.ok()) return;
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    int64_t life = 0;
    std::string run;
    const bool is_whole = fields.size() == 2 && absl::SimpleAtoi(fields[0], &life) &&
                          absl::CUnescape(fields[1], &run) && highest_.size() < kMostRuns;
    if (is_whole) highest_.emplace_back(std::move(run), life);
  }
}

bool CentralLives::Admit(const std::string& run, int64_t life) {
  auto found = std::find_if(highest_.begin(), highest_.end(),
                            [&run](const auto& one) { return one.first == run; });
  if (found != highest_.end() && life <= found->second) return life == found->second;
  if (found == highest_.end()) {
    if (highest_.size() >= kMostRuns) highest_.erase(highest_.begin());
    found = highest_.insert(highest_.end(), {run, 0});
  }
  found->second = life;
  if (path_.empty()) return true;
  std::string text;
  for (const auto& [name, highest] : highest_)
    absl::StrAppend(&text, highest, " ", absl::CEscape(name), "\n");
  WriteFileAtomically(path_, {text}).IgnoreError();
  return true;
}

}  // namespace runnel
