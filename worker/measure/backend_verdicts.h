#pragma once

// Admits backends of this device whose arithmetic was checked and is right (backend_check.h).
// Verdicts are kept from run to run, one small text file each, by device, driver and build; files
// of others, and damaged ones, count as absent. One thread.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/backends/backend.h"

namespace runnel {

class BackendVerdicts {
 public:
  // folder: made when the first verdict is kept; empty: nothing is kept.
  explicit BackendVerdicts(std::string folder) : folder_(std::move(folder)) {}

  // OK: admitted, or there is nothing to check (a backend without integer arithmetic). Uses the
  // kept verdict of the same device and build, else CheckBackend; its verdict is kept, an error of
  // the backend is not. InvalidArgument, one line: it computes wrong. Other errors: the backend's.
  absl::Status Admit(Backend& backend) const;
  // As Admit, but Unimplemented if there is nothing to check.
  absl::Status Examine(Backend& backend) const;
  // Checks anew, whatever is kept. Errors as CheckBackend.
  absl::Status CheckAnew(Backend& backend) const;
  // Some verdict is kept, of whatever device and build, that a backend of this name computes wrong.
  bool HasRefused(absl::string_view backend) const;

 private:
  std::string folder_;
};

}  // namespace runnel
