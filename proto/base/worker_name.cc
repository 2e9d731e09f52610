#include "proto/base/worker_name.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace runnel {

absl::Status CheckWorkerName(absl::string_view field, absl::string_view name) {
  constexpr size_t kMaxNameBytes = 64;
  const bool fits = !name.empty() && name.size() <= kMaxNameBytes && absl::ascii_isalnum(name[0]) &&
                    std::all_of(name.begin(), name.end(), [](char c) {
                      return absl::ascii_isalnum(c) || absl::StrContains("._-", c);
                    });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, " \"", absl::CEscape(name.substr(0, kMaxNameBytes)),
                   "\": a name is a letter or digit and up to 63 more of them, '.', '_' and '-'"));
}

}  // namespace runnel
