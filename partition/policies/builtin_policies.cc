#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "partition/policies/policies.h"

namespace runnel {

absl::Span<const PolicyRow> BuiltinPolicies() {
  static constexpr PolicyRow kRows[] = {
      {"uniform", "the same number of layers for every device", PlanBasis::kNothing, false, false,
       policies::Uniform},
      {"dp", "the fastest cut for layer and link times (AccEPT 3.5)", PlanBasis::kAnyTimes, false,
       false, policies::DynamicProgramming},
      {"accept", "AccEPT 3.5 as published: the slowest of stages, as predicted, and 2 T_c",
       PlanBasis::kPredicted, true, false, policies::Accept, nullptr, /*predictor=*/"accept"},
      {"accept_measured", "the same from measured layers: a predictor that is always right",
       PlanBasis::kMeasured, true, false, policies::Accept},
      {"ftpipehd", "FTPipeHD as published: an even cut, then by the ratio of each worker's stage",
       PlanBasis::kFirstDevice, true, false, policies::Uniform, policies::NextOfFtpipehd},
      {"ftpipehd+", "FTPipeHD's ratios before the first step, cut again until the cut stays",
       PlanBasis::kAnyTimes, true, false, policies::FtpipehdPlus},
      {"runnel", "devices, order, cut, codecs and caps together, within memory",
       PlanBasis::kAnyTimes, true, true, policies::Runnel, nullptr, "", /*bits=*/"bandwidth"},
      {"brute_force", "as dp, by trying every cut; for small models", PlanBasis::kAnyTimes, false,
       false, policies::BruteForce},
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
