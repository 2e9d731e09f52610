#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/policies/policies.h"

namespace runnel {

absl::Span<const PolicyRow> BuiltinPolicies() {
  static constexpr PolicyRow kRows[] = {
      {"uniform", "the same number of layers for every device", false, false, false,
       policies::Uniform},
      {"dp", "the fastest cut for measured layer and link times (AccEPT 3.5)", true, false, false,
       policies::DynamicProgramming},
      {"accept", "AccEPT 3.5 as published: the slowest of stages and 2 T_c", true, true, false,
       policies::Accept},
      {"ftpipehd", "FTPipeHD: the same on capacity ratios measured once per worker", true, true,
       false, policies::Ftpipehd},
      {"runnel", "devices, order, cut, codecs and caps together, within memory", true, true, true,
       policies::Runnel},
      {"brute_force", "as dp, by trying every cut; for small models", true, false, false,
       policies::BruteForce},
  };
  return kRows;
}

absl::StatusOr<const PolicyRow*> FindPolicy(absl::string_view name) {
  for (const PolicyRow& row : BuiltinPolicies()) {
    if (row.name == name) return &row;
  }
  return absl::InvalidArgumentError(absl::StrCat("policy '", name, "' is not known; there are ",
                                                 absl::StrJoin(PolicyNames(), ", ")));
}

std::vector<std::string> PolicyNames() {
  std::vector<std::string> names;
  for (const PolicyRow& row : BuiltinPolicies()) names.emplace_back(row.name);
  return names;
}

}  // namespace runnel
