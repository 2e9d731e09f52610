#include "central/planning/what_if.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "central/planning/plan_maker.h"
#include "predictor/run/run_predictor.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"
#include "proto/base/worker_name.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

// Periods that differ by at most this share are alike.
constexpr double kAlike = 0.01;

absl::Status Wrong(const std::string& text, absl::string_view what) {
  return OneLine(absl::InvalidArgumentError(absl::StrCat("what-if ", text, ": ", what,
                                                         "; give leave:NAME, add:NAME=DEVICE, "
                                                         "add:NAME=FILE.profile, mbps:X or "
                                                         "link:NAME,NAME:X")));
}

absl::StatusOr<int> Find(const std::string& text, const std::vector<JournalDevice>& devices,
                         const std::vector<bool>& usable, absl::string_view name) {
  std::vector<std::string> names;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (!usable[i]) continue;
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

// Of the devices that `decided` has, with its times.
absl::StatusOr<MeasuredCluster> ClusterOf(const PlanningInputs& inputs, const PlanDecided& decided,
                                          MeasuredCluster cluster) {
  const size_t devices = decided.devices.size();
  cluster.times.clear();
  for (const JournalDevice& device : decided.devices) cluster.times.push_back(device.times);
  const auto is_measured = [&decided](int device) {
    return !decided.devices[static_cast<size_t>(device)].times.empty();
  };
  const std::vector<int> planned = decided.plan.sole_devices();
  if (!std::all_of(planned.begin(), planned.end(), is_measured)) {
    const bool is_none = inputs.policy->basis != PlanBasis::kFirstDevice;
    return absl::FailedPreconditionError(
        absl::StrCat("what-if: policy ", inputs.policy->name, " measures ",
                     is_none ? "nothing to predict from" : "the first device alone",
                     "; take dp, accept, ftpipehd+ or runnel"));
  }
  // Who joined since has no times in `decided`.
  cluster.processor_shares.resize(devices, 1);
  cluster.costs.resize(devices);
  cluster.on_host.resize(devices, false);
  if (!cluster.memory.empty()) cluster.memory.resize(devices);
  if (!cluster.profiled_sums.empty()) cluster.profiled_sums.resize(devices);
  if (!cluster.rates.empty()) {
    cluster.rates.resize(devices);
    for (std::vector<WayFigures>& row : cluster.rates) row.resize(devices);
  }
  return cluster;
}

absl::Status InFile(const std::string& path, const absl::Status& status) {
  return OneLine(absl::Status(status.code(), absl::StrCat(path, ": ", status.message())));
}

// Of the run's model and micro-batch on the configuration that the file describes.
absl::StatusOr<DeviceTimes> TimesOf(const std::string& path, const PlanningInputs& inputs) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string text,
                          ReadWholeFile(path, static_cast<int64_t>(kMaxProfileBytes)));
  absl::StatusOr<DeviceProfile> profile = ParseProfile(text);
  if (!profile.ok()) return InFile(path, profile.status());
  absl::StatusOr<std::vector<KnownDevice>> known = KnownDevices({&*profile, 1}, inputs.model);
  if (!known.ok()) return InFile(path, known.status());
  if (known->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has no times of ", inputs.model.name,
                     "; runnel-lab profile measures them, add:NAME=DEVICE needs none"));
  }
  const KnownDevice& device = known->front();
  std::vector<double> seconds;
  for (int layer = 0; layer < inputs.model.layer_count(); ++layer)
    seconds.push_back(device.Seconds({layer, layer}));
  return DeviceTimes::ByLayer(std::move(seconds))
      .Scaled(static_cast<double>(inputs.micro_batch_size) / static_cast<double>(device.batch()));
}

// One more device at the end of the list.
absl::Status Add(const Assumption::Added& added, const PlanningInputs& inputs,
                 MeasuredCluster& cluster) {
  const auto like = static_cast<size_t>(added.like);
  DeviceTimes times = cluster.times[like];
  if (!added.profile.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(times, TimesOf(added.profile, inputs));
  }
  cluster.times.push_back(std::move(times));
  // A configuration is a host of its own, and its times are of whole processors.
  const bool is_like = added.profile.empty();
  cluster.processor_shares.push_back(is_like ? cluster.processor_shares[like] : 1);
  cluster.costs.push_back(cluster.costs[like]);
  cluster.on_host.push_back(is_like && cluster.on_host[like]);
  // Of a configuration nothing is known of its memory.
  if (!cluster.memory.empty())
    cluster.memory.push_back(is_like ? cluster.memory[like] : DeviceMemory());
  if (!cluster.profiled_sums.empty()) cluster.profiled_sums.push_back(cluster.times.back().Sum());
  LinkRates& rates = cluster.rates;
  if (rates.empty()) return absl::OkStatus();
  // Between the two of a kind: as from the one to whom both reach, central's host.
  for (std::vector<WayFigures>& row : rates) row.push_back(row[like]);
  rates.push_back(rates[like]);
  if (like == 0) return absl::OkStatus();
  rates[like].back() = rates[like][0];
  rates.back()[like] = rates[0][like];
  rates.back().back() = {};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Assumption> ParseAssumption(const std::string& text,
                                           const std::vector<JournalDevice>& devices,
                                           const std::vector<bool>& usable) {
  Assumption assumption;
  assumption.text = text;
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() == 2 && parts[0] == "leave") {
    RUNNEL_ASSIGN_OR_RETURN(assumption.leaves, Find(text, devices, usable, parts[1]));
    if (assumption.leaves == 0) return Wrong(text, "the first device has the data and stays");
    return assumption;
  }
  if (parts.size() == 2 && parts[0] == "add") {
    const std::vector<std::string> sides = absl::StrSplit(parts[1], absl::MaxSplits('=', 1));
    if (sides.size() != 2) return Wrong(text, "says nothing of how fast it is");
    RUNNEL_RETURN_IF_ERROR(CheckWorkerName("what-if add", sides[0]));
    if (Find(text, devices, usable, sides[0]).ok())
      return Wrong(text, absl::StrCat("device '", sides[0], "' is there already"));
    const auto last = std::find(usable.rbegin(), usable.rend(), true);
    Assumption::Added added{sides[0], static_cast<int>(usable.rend() - last) - 1};
    if (absl::EndsWith(sides[1], ".profile")) {
      added.profile = sides[1];
    } else {
      RUNNEL_ASSIGN_OR_RETURN(added.like, Find(text, devices, usable, sides[1]));
    }
    assumption.added = std::move(added);
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
  RUNNEL_ASSIGN_OR_RETURN(const int from, Find(text, devices, usable, ends[0]));
  RUNNEL_ASSIGN_OR_RETURN(const int to, Find(text, devices, usable, ends[1]));
  if (from == to) return Wrong(text, "a link has two ends");
  RUNNEL_ASSIGN_OR_RETURN(const LinkRate rate, ParseRate(text, parts[2]));
  assumption.links.push_back({from, to, rate});
  return assumption;
}

absl::StatusOr<std::string> WhatIf(const PlanningInputs& inputs, const PlanDecided& decided,
                                   const MeasuredCluster& known, const std::vector<bool>& usable,
                                   const Assumption& assumption) {
  RUNNEL_ASSIGN_OR_RETURN(const MeasuredCluster cluster, ClusterOf(inputs, decided, known));
  PlanningInputs assumed = inputs;
  assumed.links.assumed = assumption.links;
  for (AssumedLink& link : assumed.links.assumed) link.rate = link.rate * inputs.links.frame_share;
  const size_t there = cluster.times.size();
  MeasuredCluster then = cluster;
  if (assumption.added.has_value()) RUNNEL_RETURN_IF_ERROR(Add(*assumption.added, inputs, then));
  std::vector<int> devices;
  for (int i = 0; i < static_cast<int>(then.times.size()); ++i) {
    const bool is_there = i == static_cast<int>(there) || usable[static_cast<size_t>(i)];
    if (i != assumption.leaves && is_there && !then.times[static_cast<size_t>(i)].empty())
      devices.push_back(i);
  }
  // Caps that the user gave are for the devices that were there.
  if (assumed.caps.size() != devices.size()) assumed.caps.clear();
  const PlanMaker as_it_is(inputs);
  const PlanMaker as_assumed(std::move(assumed));
  RUNNEL_ASSIGN_OR_RETURN(const double now_s, as_it_is.PeriodSeconds(decided.plan, cluster));
  RUNNEL_ASSIGN_OR_RETURN(const Plan plan, as_assumed.MakePlan(devices, then));
  RUNNEL_ASSIGN_OR_RETURN(const double then_s, as_assumed.PeriodSeconds(plan, then));
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
  if (assumption.added.has_value() && then_s > now_s * (1 - kAlike)) {
    absl::StrAppend(&line, assumption.added->name, " would bring nothing",
                    plan.Uses(static_cast<int>(there)) ? "" : ": the plan leaves it out", "\n");
  }
  if (!assumption.links.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const double kept_s, as_assumed.PeriodSeconds(decided.plan, cluster));
    absl::StrAppendFormat(&line, "with the plan as it is: %.4f s a micro-batch\n", kept_s);
  }
  std::vector<std::string> names;
  for (const JournalDevice& device : decided.devices) names.push_back(device.name);
  if (assumption.added.has_value()) names.push_back(assumption.added->name);
  return absl::StrCat(line, ToString(plan, inputs.model, names));
}

}  // namespace runnel
