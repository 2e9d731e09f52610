#include "central/planning/what_if.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

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

absl::StatusOr<double> Bandwidth(const std::string& text, absl::string_view number) {
  double mbps = 0;
  if (!absl::SimpleAtod(number, &mbps) || !std::isfinite(mbps) || mbps <= 0) {
    return Wrong(text, absl::StrCat("'", number, "' is no bandwidth"));
  }
  return mbps;
}

struct Predicted {
  Plan plan;
  double seconds = 0;  // a micro-batch
};

// What the journal says of the devices, by number.
struct Known {
  std::vector<DeviceTimes> times;
  Conditions conditions;
};

absl::StatusOr<Predicted> Predict(const RunSetup& setup, const Plan& plan, const Known& known) {
  RUNNEL_ASSIGN_OR_RETURN(const double seconds,
                          PredictPeriod(setup, plan, known.times, known.conditions));
  return Predicted{plan, seconds};
}

absl::StatusOr<Predicted> PredictUnder(const RunSetup& setup, Generation generation,
                                       const Known& known, int leaves) {
  std::vector<int> devices;
  for (int i = 0; i < static_cast<int>(known.times.size()); ++i) {
    if (i != leaves) devices.push_back(i);
  }
  RUNNEL_ASSIGN_OR_RETURN(const Plan plan,
                          PlanFor(setup, generation, devices, known.times, known.conditions));
  return Predict(setup, plan, known);
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
    RUNNEL_ASSIGN_OR_RETURN(const double mbps, Bandwidth(text, parts[1]));
    for (int from = 0; from < static_cast<int>(devices.size()); ++from) {
      for (int to = 0; to < from; ++to) assumption.links.push_back({from, to, mbps});
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
  RUNNEL_ASSIGN_OR_RETURN(const double mbps, Bandwidth(text, parts[2]));
  assumption.links.push_back({from, to, mbps});
  return assumption;
}

absl::StatusOr<std::string> WhatIf(RunSetup& setup, const PlanDecided& decided,
                                   const Assumption& assumption) {
  Known known;
  for (const JournalDevice& device : decided.devices) {
    if (device.times.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("--what-if: policy ", setup.policy->name,
                       " measures nothing to predict from; take dp, accept, ftpipehd or runnel"));
    }
    known.times.push_back(device.times);
    known.conditions.processor_shares.push_back(device.processor_share);
  }
  RUNNEL_ASSIGN_OR_RETURN(const Predicted now, Predict(setup, decided.plan, known));
  const std::vector<AssumedLink> links = std::exchange(setup.assumed_links, assumption.links);
  // Caps that the user gave are for the devices that are there.
  std::vector<int64_t> caps = setup.settings.caps;
  if (assumption.leaves >= 0) setup.settings.caps.clear();
  const absl::StatusOr<Predicted> then =
      PredictUnder(setup, decided.plan.generation, known, assumption.leaves);
  const absl::StatusOr<Predicted> unchanged =
      assumption.leaves >= 0 ? absl::StatusOr<Predicted>(now) : Predict(setup, decided.plan, known);
  setup.assumed_links = links;
  setup.settings.caps = std::move(caps);
  RUNNEL_RETURN_IF_ERROR(then.status());
  RUNNEL_RETURN_IF_ERROR(unchanged.status());
  const double samples = static_cast<double>(setup.settings.batch_size) /
                         static_cast<double>(setup.settings.micro_batches);
  std::string line = absl::StrFormat(
      "what if %s: %.4f s a micro-batch, %.1f samples/s (now %.4f s, %.1f samples/s)\n",
      assumption.text, then->seconds, samples / then->seconds, now.seconds, samples / now.seconds);
  if (assumption.leaves < 0) {
    absl::StrAppendFormat(&line, "with the plan as it is: %.4f s a micro-batch\n",
                          unchanged->seconds);
  }
  return absl::StrCat(line, ToString(then->plan, setup.model));
}

}  // namespace runnel
