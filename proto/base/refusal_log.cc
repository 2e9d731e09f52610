#include "proto/base/refusal_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

void RefusalLog::Refused(absl::string_view why) {
  std::string line;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now_ns = clock_->NowNanos();
    if (now_ns - minute_ns_ >= kMinuteNs) {
      minute_ns_ = now_ns;
      logged_.clear();
    }
    if (logged_.size() >= kMostLines || !logged_.emplace(std::string(why)).second) {
      ++left_out_;
      return;
    }
    line = absl::StrCat("refused: ", why);
    if (const int64_t left_out = std::exchange(left_out_, 0); left_out > 0)
      absl::StrAppend(&line, " (", left_out, " more such lines were left out before)");
  }
  logger_->Log(Severity::kWarning, line);
}

}  // namespace runnel
