#pragma once

// Reads and writes the predictor's files for the commands; everything else in predictor/ works on
// values.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "predictor/profiles/profile_file.h"

namespace runnel {

// The file's text. NotFound: it cannot be read; ResourceExhausted: it has more than `max_bytes`.
// The message names the path.
absl::StatusOr<std::string> ReadText(const std::string& path, size_t max_bytes);
// Internal, naming the path: not all of `text` could be written.
absl::Status WriteText(const std::string& path, absl::string_view text);

// All *.profile files of the folder, in order of their names, at most 1000. NotFound: there is
// none; InvalidArgument: one is damaged, or two have one name of a configuration.
absl::StatusOr<std::vector<DeviceProfile>> LoadProfiles(const std::string& folder);

}  // namespace runnel
