#pragma once

// Errors of a stage that came upon a value that is no finite number.

#include "absl/status/status.h"
#include "proto/transport/control/control.h"

namespace runnel {

// `status`, marked with where the value came from. Functions that pass a status on keep the mark.
absl::Status MarkNotFinite(absl::Status status, NotFinite from);
// kNothing: `status` says nothing of the kind.
NotFinite NotFiniteOf(const absl::Status& status);

}  // namespace runnel
