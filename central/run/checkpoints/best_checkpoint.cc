#include "central/run/checkpoints/best_checkpoint.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/json/json_fields.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr char kFile[] = "/best.runnel", kFigures[] = "/best.json";
constexpr char kPrefix[] = "evaluated-";
// Steps whose check-points are still there without another name.
constexpr size_t kSteps = 2;

}  // namespace

BestCheckpoint::BestCheckpoint(std::string folder) : folder_(std::move(folder)) {
  // Of a central that was killed while it evaluated.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    if (absl::StartsWith(entry.path().filename().string(), kPrefix)) unlink(entry.path().c_str());
  }
  const auto text = ReadWholeFile(folder_ + kFigures, 4096);
  if (!text.ok()) return;
  const auto json = ParseJson(*text);
  double accuracy = 0;
  if (json.ok() && json->is_object() && json->contains("accuracy") &&
      ReadValue((*json)["accuracy"], "accuracy", accuracy).ok()) {
    best_ = accuracy;
  }
}

std::string BestCheckpoint::Kept(int64_t step) const {
  return absl::StrCat(folder_, "/", kPrefix, step, ".runnel");
}

void BestCheckpoint::Written(int64_t step, const std::string& path) {
  if (folder_.empty() || path.empty()) return;
  Step& one = steps_[step];
  one.file = path;
  if (one.is_expected && !one.accuracy.has_value()) {
    unlink(Kept(step).c_str());
    if (link(path.c_str(), Kept(step).c_str()) == 0) one.file = Kept(step);
  }
  Decide(step);
  // Evaluations come in order: what is older and has none gets none any more.
  for (auto at = steps_.begin(); steps_.size() > kSteps && at != steps_.end();)
    at = at->second.is_expected ? std::next(at) : steps_.erase(at);
}

void BestCheckpoint::Evaluated(int64_t step, double accuracy) {
  if (folder_.empty()) return;
  steps_[step].accuracy = accuracy;
  Decide(step);
}

void BestCheckpoint::Decide(int64_t step) {
  const Step one = steps_[step];
  if (!one.accuracy.has_value() || one.file.empty()) return;
  steps_.erase(step);
  const std::string kept = Kept(step), best = folder_ + kFile;
  if (*one.accuracy > best_) {
    if (one.file != kept) unlink(kept.c_str());
    const bool is_there = one.file == kept || link(one.file.c_str(), kept.c_str()) == 0;
    if (!is_there || std::rename(kept.c_str(), best.c_str()) != 0) return;
    best_ = *one.accuracy;
    const Json figures = {{"step", step}, {"accuracy", best_}};
    WriteFileAtomically(folder_ + kFigures, {DumpJson(figures)}).IgnoreError();
  } else if (one.file == kept) {
    unlink(kept.c_str());
  }
}

}  // namespace runnel
