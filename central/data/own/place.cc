#include "central/data/own/place.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel::data {

std::string Place::Option(absl::string_view name) const {
  const auto found = options.find(name);
  return found == options.end() ? "" : found->second;
}

absl::StatusOr<Place> ParsePlace(absl::string_view text, size_t paths,
                                 absl::Span<const absl::string_view> options,
                                 absl::string_view usage) {
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("--data ", usage, ": ", what));
  };
  Place place;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (part.empty()) return wrong("an empty part");
    if (place.paths.size() < paths) {
      place.paths.emplace_back(part);
      continue;
    }
    const std::pair<absl::string_view, absl::string_view> option =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (std::find(options.begin(), options.end(), option.first) == options.end())
      return wrong(absl::StrCat("'", part, "' is no option of it"));
    if (option.second.empty()) return wrong(absl::StrCat(option.first, " has no value"));
    if (!place.options.emplace(option.first, option.second).second)
      return wrong(absl::StrCat(option.first, " is there twice"));
  }
  if (place.paths.size() < paths) return wrong("a path is missing");
  return place;
}

}  // namespace runnel::data
