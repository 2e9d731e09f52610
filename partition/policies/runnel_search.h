#pragma once

// The search behind the policy `runnel`, for one order of devices and one pair of codecs: the cut
// and the least caps that reach a period.
//
// With period T, stage i needs
//   c_i = max over j > i of c_j - 1 + ceil(round trip from i down to j and back / T)
// micro-batches in flight, c of the last stage being 1 (partition/simulator.h, BoundNs). Let
//   u_i = max over j > i of c_j - 1 + (that round trip less stage i's own part) / T.
// Then c_i = ceil(u_i + stage_i / T), and u_{i-1} depends on the stages behind only through
// max(u_i, c_i - 1) + pass_i / T, pass being forward and input-gradient. It grows with u_i, and so
// do the caps and the memory, so that a recurrence from the last layer that keeps the least value
// for every (first layer, stage) is exact, memory limits included.

#include <cstdint>
#include <optional>
#include <vector>

#include "partition/pipeline_model.h"

namespace runnel::policies {

class OrderSearch {
 public:
  // `model` must outlive it. order.size() <= layers.
  OrderSearch(const PipelineModel& model, std::vector<int> order, int codec);

  const std::vector<int>& order() const { return order_; }
  int codec() const { return codec_; }

  // What coding for its links, and what runs beside it, takes from the computation of stage n with
  // layers first..last.
  double Coded(int n, int first, int last) const;
  double Taken(int n, int first, int last) const;
  // The slowest lane or way of the best cut, seconds, as if caps and memory had no limit.
  double LowestPeriod() const;

  // A cut with the least caps that reach `period` within `max_cap` and the devices' memory.
  std::optional<Placement> Reach(double period, int64_t max_cap) const;

  // The least period within `max_cap` and memory, to 1e-7 of it; none if memory is never enough.
  struct Found {
    Placement placement;
    double period = 0;
  };
  std::optional<Found> Best(int64_t max_cap) const;

 private:
  struct Range {  // of layers on a stage: seconds
    double total = 0;
    double pass = 0;
  };
  struct Link {          // behind a layer, from a stage to the next: seconds
    double slowest = 0;  // of the ways
    double round = 0;    // down and up
    double sender_codec = 0;
    double receiver_codec = 0;
    double sender_codes = 0;  // WaySeconds, both ways
    double receiver_codes = 0;
    double sender_takes = 0;
    double receiver_takes = 0;
  };
  // The slowest lane or way that stage n with layers first..last adds.
  double Slowest(int n, int first, int last) const;
  const Range& RangeOf(int n, int first, int last) const {
    return ranges_[(n * layers_ + first) * layers_ + last];
  }
  const Link& LinkOf(int n, int last) const { return links_[n * layers_ + last]; }

  const PipelineModel* model_;
  std::vector<int> order_;
  int codec_;
  int layers_;
  int stages_;
  std::vector<Range> ranges_;
  std::vector<Link> links_;
};

}  // namespace runnel::policies
