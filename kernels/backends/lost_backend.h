#pragma once

// Errors that say: the device behind a backend is lost to this process, or has no room for the
// stage. What the stage had there is gone; the same program runs on another backend.

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace runnel {

// `status`, which says why, marked: the backend of this name is lost. Functions that pass a status
// on keep the mark; one that makes a status of its message does not.
absl::Status MarkLostBackend(absl::Status status, absl::string_view backend);

// The backend that is lost; none: `status` says nothing of the kind.
std::optional<std::string> LostBackendOf(const absl::Status& status);

}  // namespace runnel
