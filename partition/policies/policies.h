#pragma once

// The partitioning policies, one function each; builtin_policies.cc is the table.

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "partition/policy.h"

namespace runnel::policies {

// The same number of layers for everybody; where they do not divide evenly the earlier stages get
// one more (AccEPT's "average partition": 20 layers on 3 devices are cut after 7 and 14). Looks at
// no cost.
absl::StatusOr<Partition> Uniform(const PartitionRequest& request);

// AccEPT 3.5, equations 9 and 10: the cut whose slowest resource (a stage's computing, or a link's
// seconds down plus up, which is the paper's 2 T_c where both are equal) is fastest, for a fixed
// order of devices. The argmin is kept for every (layers, devices); of equal ones the smallest p.
// Time O(devices * layers^2).
absl::StatusOr<Partition> DynamicProgramming(const PartitionRequest& request);

// The same objective over every cut: the oracle for the one above. Of equal cuts the first in
// lexicographic order. FailedPrecondition for more than 2,000,000 cuts.
absl::StatusOr<Partition> BruteForce(const PartitionRequest& request);

// AccEPT as published: equations 9 and 10 with their 2 T_c, T_c being the time of the activation on
// its way down.
absl::StatusOr<Partition> Accept(const PartitionRequest& request);

// FTPipeHD as AccEPT restates it (2.3): central measures its own layers, every worker the time of
// the layers that it has. The ratio of that to central's time for the same layers is the worker's
// capacity, and central's layer times multiplied by it are what Accept's recurrence runs on. Here
// each worker's time for its layers of the cut `held` is what request.compute says, which for other
// layers is looked at for the first device alone. bottleneck_seconds is by its own estimate.
absl::StatusOr<Partition> NextOfFtpipehd(const PartitionRequest& request,
                                         const std::vector<int>& held);

// FTPipeHD with every device measured: begins with the uniform cut and cuts again until the cut
// stays, repeats an earlier one, or has changed 16 times.
absl::StatusOr<Partition> FtpipehdPlus(const PartitionRequest& request);

// Order and subset of the devices (device 0 first), cut, codecs of each link and caps together: the
// least ChargedPeriod (partition/pipeline_model.h) within the devices' memory. Up to 6 devices in
// every order, with more by local search from several starts, which ends after a fixed amount of
// work. Orders are compared by the closed form of partition/simulator.h; where that is only a
// bound, and where the pipeline drains, small changes are tried by simulation at the end. Plans of
// Accept, DynamicProgramming, FtpipehdPlus and Uniform are among the candidates (up to 64 devices),
// so that none of them is charged less. Up to 8 devices the best plan of the first two, the first
// three, and so on, for the same costs: of up to 8, one more device at the list's end is never
// charged more. Not so for one in their midst, nor where the codecs are chosen around this policy. ResourceExhausted if nothing
// that was found fits the memory.
absl::StatusOr<Partition> Runnel(const PartitionRequest& request);

// The seconds that a policy charges for a link.
enum class LinkCharge : uint8_t { kDownPlusUp, kTwiceDown };

// The recurrence behind `dp`, `accept` and `ftpipehd`.
absl::StatusOr<Partition> MinimiseSlowest(const PartitionRequest& request, LinkCharge charge);

// InvalidArgument unless there are devices and layers.
absl::Status CheckIsSome(const PartitionRequest& request);
// As CheckIsSome, and InvalidArgument for more devices than layers.
absl::Status CheckCounts(const PartitionRequest& request);

// Reads the costs of a request and remembers the first one that is negative or not finite.
class CheckedCosts {
 public:
  // `request` must outlive it and have passed CheckHasCosts.
  explicit CheckedCosts(const PartitionRequest& request) : request_(request) {}

  double StageSeconds(int device, int first_layer, int last_layer);
  // Both ways over the link behind `layer`, from device `from` to the next.
  double LinkSeconds(int layer, int from, LinkCharge charge = LinkCharge::kDownPlusUp);
  // InvalidArgument names the cost that is no number of seconds.
  const absl::Status& status() const { return status_; }

 private:
  double Check(double seconds, const char* what, int device, int layer);
  const PartitionRequest& request_;
  absl::Status status_;
};

// CheckCounts, and InvalidArgument if the request has no cost model or no link times.
absl::Status CheckHasCosts(const PartitionRequest& request);

}  // namespace runnel::policies
