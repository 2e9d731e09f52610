#include "central/planning/what_if.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "central/planning/plan_maker.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Periods that differ by at most this share are alike.
constexpr double kAlike = 0.01;

absl::Status Wrong(const std::string& text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("--what-if ", text, ": ", what,
                                                 "; give leave:NAME, mbps:X or link:NAME,NAME:X"));
}

absl::StatusOr<int> Find(const std::string& text, const std::vector<JournalDevice>& devices,
                         absl::string_view name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].name == name) return static_cast<int>(i);
    names.push_back(devices[i].name);
  }
  return Wrong(text, absl::StrCat("device '", name, "' is not there, there are ",
                                  absl::StrJoin(names, ", ")));
}

absl::StatusOr<LinkRate> ParseRate(const std::string& text, absl::string_view number) {
  double mbps = 0;
  if (!absl::SimpleAtod(number, &mbps) || !std::isfinite(mbps) || mbps <= 0) {
    return Wrong(text, absl::StrCat("'", number, "' is no bandwidth"));
  }
  return LinkRate::Mbps(mbps);
}

absl::StatusOr<MeasuredCluster> ClusterOf(const PlanningInputs& inputs,
                                          const PlanDecided& decided) {
  MeasuredCluster cluster;
  for (const JournalDevice& device : decided.devices) {
    if (device.times.empty()) {
      const bool is_none = inputs.policy->basis != PlanBasis::kFirstDevice;
      return absl::FailedPreconditionError(
          absl::StrCat("--what-if: policy ", inputs.policy->name, " measures ",
                       is_none ? "nothing to predict from" : "the first device alone",
                       "; take dp, accept, ftpipehd+ or runnel"));
    }
    cluster.times.push_back(device.times);
    cluster.processor_shares.push_back(device.processor_share);
    cluster.costs.push_back(device.costs);
    cluster.on_host.push_back(device.on_host);
  }
  return cluster;
}

}  // namespace

absl::StatusOr<Assumption> ParseAssumption(const std::string& text,
                                           const std::vector<JournalDevice>& devices) {
  Assumption assumption;
  assumption.text = text;
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() == 2 && parts[0] == "leave") {
    RUNNEL_ASSIGN_OR_RETURN(assumption.leaves, Find(text, devices, parts[1]));
    if (assumption.leaves == 0) return Wrong(text, "the first device has the data and stays");
    return assumption;
  }
  if (parts.size() == 2 && parts[0] == "mbps") {
    RUNNEL_ASSIGN_OR_RETURN(const LinkRate rate, ParseRate(text, parts[1]));
    for (int from = 0; from < static_cast<int>(devices.size()); ++from) {
      for (int to = 0; to < from; ++to) assumption.links.push_back({from, to, rate});
    }
    return assumption;
  }
  const std::vector<std::string> ends = parts.size() == 3 && parts[0] == "link"
                                            ? absl::StrSplit(parts[1], ',')
                                            : std::vector<std::string>();
  if (ends.size() != 2) return Wrong(text, "is not understood");
  RUNNEL_ASSIGN_OR_RETURN(const int from, Find(text, devices, ends[0]));
  RUNNEL_ASSIGN_OR_RETURN(const int to, Find(text, devices, ends[1]));
  if (from == to) return Wrong(text, "a link has two ends");
  RUNNEL_ASSIGN_OR_RETURN(const LinkRate rate, ParseRate(text, parts[2]));
  assumption.links.push_back({from, to, rate});
  return assumption;
}

absl::StatusOr<std::string> WhatIf(const PlanningInputs& inputs, const PlanDecided& decided,
                                   const LinkRates& rates, const Assumption& assumption) {
  RUNNEL_ASSIGN_OR_RETURN(MeasuredCluster cluster, ClusterOf(inputs, decided));
  cluster.rates = rates;
  PlanningInputs assumed = inputs;
  assumed.links.assumed = assumption.links;
  for (AssumedLink& link : assumed.links.assumed) link.rate = link.rate * inputs.links.frame_share;
  // Caps that the user gave are for the devices that are there.
  if (assumption.leaves.has_value()) assumed.caps.clear();
  std::vector<int> devices;
  for (int i = 0; i < static_cast<int>(cluster.times.size()); ++i) {
    if (i != assumption.leaves) devices.push_back(i);
  }
  const PlanMaker as_it_is(inputs);
  const PlanMaker as_assumed(std::move(assumed));
  RUNNEL_ASSIGN_OR_RETURN(const double now_s, as_it_is.PeriodSeconds(decided.plan, cluster));
  RUNNEL_ASSIGN_OR_RETURN(const Plan plan, as_assumed.MakePlan(devices, cluster));
  RUNNEL_ASSIGN_OR_RETURN(const double then_s, as_assumed.PeriodSeconds(plan, cluster));
  const double samples =
      static_cast<double>(inputs.batch_size) / static_cast<double>(inputs.micro_batches);
  std::string line = absl::StrFormat(
      "what if %s: %.4f s a micro-batch, %.1f samples/s (now %.4f s, %.1f samples/s)\n",
      assumption.text, then_s, samples / then_s, now_s, samples / now_s);
  if (assumption.leaves.has_value() && then_s < now_s * (1 - kAlike)) {
    absl::StrAppend(&line, "without ",
                    decided.devices[static_cast<size_t>(*assumption.leaves)].name,
                    " it would be faster: leave it out, or take --policy runnel, which chooses\n");
  }
  if (!assumption.leaves.has_value()) {
    RUNNEL_ASSIGN_OR_RETURN(const double kept_s, as_assumed.PeriodSeconds(decided.plan, cluster));
    absl::StrAppendFormat(&line, "with the plan as it is: %.4f s a micro-batch\n", kept_s);
  }
  std::vector<std::string> names;
  for (const JournalDevice& device : decided.devices) names.push_back(device.name);
  return absl::StrCat(line, ToString(plan, inputs.model, names));
}

}  // namespace runnel
