#pragma once

// Finds the join doors of centrals on this network by mDNS, with Avahi's client program.

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// "HOST:PORT" of each door, as central announces it (central/cli/announcement.h). Blocks for a second or
// two. FailedPrecondition: there is no Avahi here; NotFound: no central answers. The messages say what to
// do instead. Nobody vouches for an address: a token is shown only to the cluster that it is of.
absl::StatusOr<std::vector<std::string>> FindCentrals();

// The same out of what `avahi-browse --resolve --parsable` prints. Lines that are none are left out.
std::vector<std::string> ParseFoundCentrals(absl::string_view output);

}  // namespace runnel
