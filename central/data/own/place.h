#pragma once

// Where data of the user's own lie: the text behind the colon of --data csv:FILE,label=NAME.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel::data {

struct Place {
  std::vector<std::string> paths;
  std::map<std::string, std::string, std::less<>> options;

  // The option's value; empty: it was not given.
  std::string Option(absl::string_view name) const;
};

// "PATH[,PATH...][,NAME=VALUE...]" with exactly so many paths. InvalidArgument says what is missing
// or which option is none of `options`; `usage` ("csv:FILE[,label=COLUMN]") ends the line.
absl::StatusOr<Place> ParsePlace(absl::string_view text, size_t paths,
                                 absl::Span<const absl::string_view> options,
                                 absl::string_view usage);

}  // namespace runnel::data
