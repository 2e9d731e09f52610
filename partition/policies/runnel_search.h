#pragma once

// The search behind the policy `runnel`, for one order of devices: cut, codecs of each link, and
// caps.
//
// With period T, stage i needs
//   c_i = max over j > i of c_j - 1 + ceil(round trip from i down to j and back / T)
// micro-batches in flight, c of the last stage being 1 (partition/simulator.h, BoundNs). Let
//   u_i = max over j > i of c_j - 1 + (that round trip less stage i's own part) / T.
// Then c_i = ceil(u_i + stage_i / T), and u_{i-1} depends on the stages behind only through
// max(u_i, c_i - 1) + pass_i / T, pass being forward and input-gradient. It grows with u_i, and so
// do the caps and the memory, so that a recurrence from the last layer that keeps the least value
// for every (first layer, stage, codecs of the link above) is exact, memory limits included.
//
// What frames take of a medium that links share adds up over the links, and what stages take of a
// host's processors over its stages: such a host counts as a medium. So of the states that are
// alike otherwise all are kept that are not worse than another one both in that and in the value,
// up to a number.
//
// A run of M micro-batches that begins and ends with an empty pipeline takes, with round_i from
// stage i to the end and back,
//   E_i = max(M stage_i - w_i, pass_i + link_i + E_{i+1}, pass_i + round_i+1 + (M - 1) slowest way,
//             round_i (floor((M - 1) / c_i) + 1))
// until stage i's last input-gradient, w_i being the weight-gradient: a recurrence over the same
// states.

#include <cstdint>
#include <optional>
#include <vector>

#include "partition/pipeline_model.h"
#include "partition/policies/runnel_tables.h"

namespace runnel::policies {

class OrderSearch {
 public:
  // `tables` must outlive it. order.size() <= blocks.
  OrderSearch(SearchTables& tables, std::vector<int> order);

  int stages() const { return stages_; }

  // The slowest lane or way of the best cut, seconds, as if caps, media and memory had no limit.
  // Infinite: the tables have codecs for too few places.
  double LowestPeriod();
  // A cut with the least caps that reach `period` within `max_cap` and the devices' memory.
  std::optional<Placement> Reach(double period, int64_t max_cap);
  // The cut that takes `micro_batches` through an empty pipeline soonest, with the largest caps
  // within `max_cap` and the memory.
  std::optional<Placement> SoonestDrained(int64_t micro_batches, int64_t max_cap);
  // Bytes that the devices' memory is short of, at least, with one micro-batch in flight; 0: fits.
  // Infinite: as LowestPeriod.
  double MissingBytes();

 private:
  using Link = SearchTables::Link;
  struct Stage {  // one that is tried
    int n = 0;
    int first = 0;
    int last = 0;
    const Link* above = nullptr;
    const Link* below = nullptr;
    double total = 0;  // seconds of its computation, with what coding and frames take
    double pass = 0;
    double slowest_way = 0;
    double codec_lane = 0;
    double air[2] = {0, 0};
  };
  // extend(stage, label of the next one or null, label to fill) -> whether it may be.
  template <typename Extend>
  void Solve(double limit, const Extend& extend);
  void FillStage(Stage& stage) const;
  void Keep(size_t state, const SearchLabel& label);
  void FillDeferred(int64_t max_cap);
  bool FitsMemory(const Stage& stage, int64_t cap) const;
  int64_t MissingBytesOf(const Stage& stage) const;
  std::optional<Placement> Trace(const SearchLabel* best) const;
  double LeastKey() const;
  const SearchLabel* BestRoot(double air_limit) const;
  size_t StateOf(int n, int first, int above) const {
    return (static_cast<size_t>(n) * blocks_ + first) * widest_ + above;
  }

  SearchTables& tables_;
  const PipelineModel& model_;
  std::vector<int> order_;
  int stages_;
  int blocks_;
  int widest_ = 1;  // pairs of codecs of a link, at most
  int media_ = 0;   // number of media that links share, and of hosts that stages do
  int kept_ = 1;    // labels of a state, at most
  std::vector<const SearchTables::Stages*> computing_;
  std::vector<const SearchTables::Links*> links_;  // behind each stage but the last
  std::vector<int> down_medium_, up_medium_;       // by link: of the media above, -1: none
  std::vector<int> host_medium_;                   // by stage: likewise of its host's processors
  std::vector<bool> one_air_;                      // by link: its ways share a medium
  std::vector<double> overhead_;                   // by stage
  std::vector<int64_t> deferred_;  // [stage * max_cap_ + cap - 1], of the recurrence that runs
  int64_t max_cap_ = 0;
};

}  // namespace runnel::policies
