#include "worker/core/rejoin_policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

constexpr int64_t kFirstPauseMs = 100;
constexpr int64_t kLongestPauseMs = 2'000;
constexpr int kMostTriesForARun = 8;  // some 9 s

// Another dial meets it again.
bool IsLasting(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

RejoinPolicy::Next RejoinPolicy::After(const absl::Status& status, bool welcomed) {
  // A central that waits for a run sends everybody away when one begins.
  if (status.ok() && !welcomed) {
    tries_in_vain_ = 0;
    is_sent_away_ = true;
    return {.pause_ms = kFirstPauseMs, .line = last_line_ = "a run begins; dialling again"};
  }
  if (welcomed) is_sent_away_ = false;
  // The central that waited has not quite gone, or the run's is not there yet.
  const bool has_to_come =
      is_sent_away_ && absl::IsUnavailable(status) && tries_in_vain_ < kMostTriesForARun;
  if (once_ && !has_to_come) {
    // No seat for this worker: nobody waits for another run.
    if (!absl::IsResourceExhausted(status)) return {.ends = true, .status = status};
    return {.ends = true, .status = absl::FailedPreconditionError(status.message())};
  }
  if (!welcomed && IsLasting(status)) return {.ends = true, .status = status};
  if (welcomed) tries_in_vain_ = 0;
  Next next;
  const std::string line = status.ok() ? "the run is over; waiting for the next one"
                                       : absl::StrCat(status.message(), "; dialling again");
  // A worker whose central is away for a night says so once.
  if (line != last_line_) next.line = last_line_ = line;
  next.pause_ms = std::min(kLongestPauseMs, kFirstPauseMs << std::min(tries_in_vain_++, 10));
  return next;
}

}  // namespace runnel
