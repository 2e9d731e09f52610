#include "central/run/checkpoints/checkpoint_failures.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace runnel {

absl::Status CheckpointFailures::Add(const CheckpointEnd& end, int64_t now_ns,
                                     std::string& warning) {
  warning.clear();
  if (end.status.ok() && end.path.empty()) {
    if (std::exchange(leaves_out_, true)) return absl::OkStatus();
    warning = absl::StrCat("check-point of step ", end.step,
                           " left out, as are others until the one before is written");
    return absl::OkStatus();
  }
  leaves_out_ = false;
  if (end.status.ok()) {
    in_a_row_ = 0;
    return absl::OkStatus();
  }
  if (IsLasting(end.status) || end.step == last_step_) return end.status;
  if (in_a_row_++ == 0) since_ns_ = now_ns;
  constexpr int64_t kMinuteNs = 60'000'000'000;
  if (in_a_row_ < kLeast || now_ns - since_ns_ < kPatienceNs) {
    // Once a barrier would be ten lines a second.
    if (in_a_row_ == 1) {
      warning = absl::StrCat("step ", end.step, ": ", end.status.message(),
                             "; training goes on, the next barriers try again, for ",
                             kPatienceNs / kMinuteNs, " minutes");
    }
    return absl::OkStatus();
  }
  return absl::Status(
      end.status.code(),
      absl::StrCat(end.status.message(), ", at ", in_a_row_, " barriers in a row for ",
                   (now_ns - since_ns_) / kMinuteNs, " minutes: make room or mend the folder"));
}

}  // namespace runnel
