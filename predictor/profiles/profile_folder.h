#pragma once

// Files of the predictor: the profiles of a folder, texts in and out. For the commands; the rest of
// this folder works on values.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "predictor/profiles/profile_file.h"

namespace runnel {

// At most `max_bytes`. NotFound, ResourceExhausted; the message names the path.
absl::StatusOr<std::string> ReadText(const std::string& path, size_t max_bytes);
// Internal, naming the path, if not all of it could be written.
absl::Status WriteText(const std::string& path, absl::string_view text);

// All *.profile files of the folder, in order of their names, at most 1000. NotFound: there is
// none; InvalidArgument: one is damaged, or two have one name of a configuration.
absl::StatusOr<std::vector<DeviceProfile>> LoadProfiles(const std::string& folder);

}  // namespace runnel
