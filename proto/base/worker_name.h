#pragma once

// Rules for a worker's name, which ends up in log lines, on terminals, in file names and in
// certificates.

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace runnel {

// InvalidArgument, with `field` in front, unless `name` is [A-Za-z0-9][A-Za-z0-9._-]{0,63}.
absl::Status CheckWorkerName(absl::string_view field, absl::string_view name);

}  // namespace runnel
