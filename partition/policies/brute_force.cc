#include <algorithm>

#include "absl/strings/str_cat.h"
#include "partition/policies/policies.h"
#include "proto/base/status_macros.h"

namespace runnel::policies {
namespace {

constexpr int64_t kMaxCuts = 2'000'000;

// Binomial coefficient of layers - 1 over devices - 1, or kMaxCuts + 1 if it is larger.
int64_t CountCuts(int layers, int devices) {
  const int choose = std::min(devices - 1, layers - devices);
  int64_t count = 1;
  for (int i = 1; i <= choose; ++i) {
    count = count * (layers - 1 - choose + i) / i;
    if (count > kMaxCuts) return kMaxCuts + 1;
  }
  return count;
}

double Slowest(CheckedCosts& costs, const std::vector<int>& last_layer) {
  double slowest = 0;
  int first = 0;
  for (int device = 0; device < static_cast<int>(last_layer.size()); ++device) {
    const int last = last_layer[device];
    slowest = std::max(slowest, costs.StageSeconds(device, first, last));
    if (device + 1 < static_cast<int>(last_layer.size())) {
      slowest = std::max(slowest, costs.LinkSeconds(last, device));
    }
    first = last + 1;
  }
  return slowest;
}

// The next cut in lexicographic order; false after the last one.
bool NextCut(int layers, std::vector<int>& last_layer) {
  const int devices = static_cast<int>(last_layer.size());
  for (int i = devices - 2; i >= 0; --i) {
    if (last_layer[i] >= layers - devices + i) continue;
    ++last_layer[i];
    for (int j = i + 1; j < devices - 1; ++j) last_layer[j] = last_layer[j - 1] + 1;
    return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<Partition> BruteForce(const PartitionRequest& request) {
  RUNNEL_RETURN_IF_ERROR(CheckHasCosts(request));
  if (CountCuts(request.layers, request.devices) > kMaxCuts) {
    return absl::FailedPreconditionError(
        absl::StrCat("brute_force: ", request.layers, " layers on ", request.devices,
                     " devices have more than ", kMaxCuts, " cuts; use the policy dp"));
  }
  CheckedCosts costs(request);
  std::vector<int> candidate(request.devices);
  for (int i = 0; i < request.devices; ++i) candidate[i] = i;
  candidate.back() = request.layers - 1;
  std::vector<int> best = candidate;
  double least = Slowest(costs, candidate);
  while (costs.status().ok() && NextCut(request.layers, candidate)) {
    const double slowest = Slowest(costs, candidate);
    if (slowest >= least) continue;
    best = candidate;
    least = slowest;
  }
  RUNNEL_RETURN_IF_ERROR(costs.status());
  return Partition{{.order = {}, .last_layer = best, .caps = {}, .codecs = {}}, least};
}

}  // namespace runnel::policies
