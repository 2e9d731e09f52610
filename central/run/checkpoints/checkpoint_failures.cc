#include "central/run/checkpoints/checkpoint_failures.h"

#include "absl/strings/str_cat.h"

namespace runnel {

absl::Status CheckpointFailures::Add(const CheckpointEnd& end, std::string& warning) {
  warning.clear();
  if (end.status.ok() && end.path.empty()) {
    warning = absl::StrCat("check-point of step ", end.step,
                           " left out: the one before was still being written");
    return absl::OkStatus();
  }
  if (end.status.ok()) {
    in_a_row_ = 0;
    return absl::OkStatus();
  }
  // Neither of these is another one the next time: it is too large, or another central has the run.
  const bool is_lasting = absl::IsInvalidArgument(end.status) || absl::IsAborted(end.status);
  if (is_lasting || end.step == last_step_) return end.status;
  if (++in_a_row_ < kMost) {
    warning = absl::StrCat("step ", end.step, ": ", end.status.message(),
                           "; training goes on, the next barrier tries again (", in_a_row_, " of ",
                           kMost, ")");
    return absl::OkStatus();
  }
  return absl::Status(end.status.code(),
                      absl::StrCat(end.status.message(), ", at ", kMost,
                                   " barriers in a row: make room or mend the folder"));
}

}  // namespace runnel
