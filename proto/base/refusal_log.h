#pragma once

// Log lines about peers that were refused. A stranger can be refused as often as it likes: each
// text is logged once a minute, and no more than kMostLines texts a minute. What was left out is
// counted and said with the next line. Thread-safe.

#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"

namespace runnel {

class RefusalLog {
 public:
  static constexpr int kMostLines = 20;

  // Both outlive it.
  RefusalLog(Logger* logger, const Clock* clock) : logger_(logger), clock_(clock) {}

  // `why` is one line; text of a peer in it must have been made harmless.
  void Refused(absl::string_view why);

 private:
  static constexpr int64_t kMinuteNs = int64_t{60} * 1000 * 1000 * 1000;

  Logger* const logger_;
  const Clock* const clock_;
  std::mutex mutex_;
  std::set<std::string> logged_;    // in this minute; guarded by mutex_
  int64_t minute_ns_ = -kMinuteNs;  // its beginning; guarded by mutex_
  int64_t left_out_ = 0;            // guarded by mutex_
};

}  // namespace runnel
