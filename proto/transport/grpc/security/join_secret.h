#pragma once

// A file by which a worker shows a central on the same host that the same user runs both: where
// streams are not encrypted, any user of the host can dial central's port. Each central makes a new
// secret for its port, so what somebody else who has the port later is shown is of no use.

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace runnel {

// $RUNNEL_RUNTIME_DIR, $XDG_RUNTIME_DIR/runnel, or /tmp/runnel-USER; the first of these that can be
// had.
std::string DefaultSecretsFolder();

// Makes the file of a central that listens on `port`; the secret. PermissionDenied: the folder
// belongs to somebody else. Others as proto/process/atomic_file.h.
absl::StatusOr<std::string> MakeJoinSecret(const std::string& folder, int port);
void RemoveJoinSecret(const std::string& folder, int port);
// The secret of the central that listens on `port`. NotFound: there is none, or it is another
// user's.
absl::StatusOr<std::string> ReadJoinSecret(const std::string& folder, int port);

}  // namespace runnel
