#include "kernels/ir/co_scheduler/gradient_placement.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/ir/co_scheduler/chain_schedule.h"

namespace runnel {
namespace {

// When a processor is done with the first items that it was given, and how.
class LaneTimes {
 public:
  LaneTimes(const GradientLanes& lanes, int processor)
      : lanes_(lanes),
        processor_(static_cast<size_t>(processor)),
        steps_({{lanes.free_seconds[processor_], 0}}) {}

  double end_seconds() const { return steps_.back().end_seconds; }

  void Push(int item) {
    items_.push_back(item);
    const size_t count = items_.size();
    Step best = {std::numeric_limits<double>::infinity(), 0};
    double ready = 0, seconds = lanes_.group_seconds[processor_];
    // The group of the last items from `first` on.
    for (size_t first = count; first-- > 0;) {
      ready = std::max(ready, Of(first).ready_seconds);
      seconds += Of(first).seconds[processor_];
      const double end = std::max(steps_[first].end_seconds, ready) + seconds;
      if (end <= best.end_seconds) best = {end, first};
    }
    steps_.push_back(best);
  }
  void Pop() {
    items_.pop_back();
    steps_.pop_back();
  }

  // Fills in the groups and times of its items.
  void WriteTo(GradientPlacement& placement) const {
    std::vector<size_t> firsts;
    for (size_t at = items_.size(); at > 0; at = steps_[at].first)
      firsts.push_back(steps_[at].first);
    std::reverse(firsts.begin(), firsts.end());
    for (size_t group = 0; group < firsts.size(); ++group) {
      const size_t end = group + 1 < firsts.size() ? firsts[group + 1] : items_.size();
      double at = steps_[firsts[group]].end_seconds;
      for (size_t i = firsts[group]; i < end; ++i) at = std::max(at, Of(i).ready_seconds);
      for (size_t i = firsts[group]; i < end; ++i) {
        const auto item = static_cast<size_t>(items_[i]);
        placement.processors[item] = static_cast<int>(processor_);
        placement.groups[item] = static_cast<int>(group);
        placement.begin_seconds[item] = at;
        at += Of(i).seconds[processor_];
        if (i == firsts[group]) at += lanes_.group_seconds[processor_];
      }
    }
  }

 private:
  struct Step {
    double end_seconds = 0;
    size_t first = 0;  // of the last group
  };
  const GradientItem& Of(size_t i) const { return lanes_.items[static_cast<size_t>(items_[i])]; }

  const GradientLanes& lanes_;
  const size_t processor_;
  std::vector<int> items_;
  std::vector<Step> steps_;  // after so many items
};

std::vector<LaneTimes> EmptyLanes(const GradientLanes& lanes) {
  std::vector<LaneTimes> times;
  for (int p = 0; p < lanes.processors(); ++p) times.emplace_back(lanes, p);
  return times;
}

double EndOf(const GradientLanes& lanes, const std::vector<LaneTimes>& times) {
  double end = lanes.least_end_seconds;
  for (const LaneTimes& lane : times) end = std::max(end, lane.end_seconds());
  return end;
}

double EndSeconds(const GradientLanes& lanes, const std::vector<int>& processors) {
  std::vector<LaneTimes> times = EmptyLanes(lanes);
  for (size_t i = 0; i < processors.size(); ++i)
    times[static_cast<size_t>(processors[i])].Push(static_cast<int>(i));
  return EndOf(lanes, times);
}

// Branch and bound over the items in their order.
class Search {
 public:
  Search(const GradientLanes& lanes, std::vector<int> start)
      : lanes_(lanes), times_(EmptyLanes(lanes)), best_(std::move(start)) {
    best_end_ = EndSeconds(lanes, best_);
    least_rest_.resize(lanes.items.size() + 1);
    for (size_t i = lanes.items.size(); i-- > 0;) {
      const std::vector<double>& seconds = lanes.items[i].seconds;
      least_rest_[i] = least_rest_[i + 1] + *std::min_element(seconds.begin(), seconds.end());
    }
  }

  std::vector<int> Run() {
    Greedy();
    Improve();
    Place(0);
    if (looked_at_ > kMostPlacements) Improve();
    return best_;
  }

 private:
  // Each item where it is done first.
  void Greedy() {
    std::vector<LaneTimes> times = EmptyLanes(lanes_);
    std::vector<int> processors;
    for (size_t i = 0; i < lanes_.items.size(); ++i) {
      double least = kUnsupported;
      int at = 0;
      for (int p = 0; p < lanes_.processors(); ++p) {
        if (lanes_.items[i].seconds[static_cast<size_t>(p)] == kUnsupported) continue;
        LaneTimes& lane = times[static_cast<size_t>(p)];
        lane.Push(static_cast<int>(i));
        if (lane.end_seconds() < least) {
          least = lane.end_seconds();
          at = p;
        }
        lane.Pop();
      }
      times[static_cast<size_t>(at)].Push(static_cast<int>(i));
      processors.push_back(at);
    }
    Take(processors);
  }

  // Moves single items as long as that helps.
  void Improve() {
    for (bool helps = true; helps;) {
      helps = false;
      for (size_t i = 0; i < best_.size(); ++i) {
        for (int p = 0; p < lanes_.processors(); ++p) {
          std::vector<int> other = best_;
          other[i] = p;
          if (lanes_.items[i].seconds[static_cast<size_t>(p)] < kUnsupported)
            helps = Take(other) || helps;
        }
      }
    }
  }

  bool Take(const std::vector<int>& processors) {
    const double end = EndSeconds(lanes_, processors);
    if (end >= best_end_) return false;
    best_end_ = end;
    best_ = processors;
    return true;
  }

  // No placement that begins as this one ends before it: a processor is at least as much later done
  // as an item takes there.
  double LeastEnd() const {
    double sum = least_rest_[placed_.size()];
    for (const LaneTimes& lane : times_) sum += lane.end_seconds();
    return std::max(EndOf(lanes_, times_), sum / static_cast<double>(times_.size()));
  }

  void Place(size_t item) {
    if (++looked_at_ > kMostPlacements || LeastEnd() >= best_end_) return;
    if (item == lanes_.items.size()) {
      best_end_ = EndOf(lanes_, times_);
      best_ = placed_;
      return;
    }
    for (int p = 0; p < lanes_.processors(); ++p) {
      if (lanes_.items[item].seconds[static_cast<size_t>(p)] == kUnsupported) continue;
      times_[static_cast<size_t>(p)].Push(static_cast<int>(item));
      placed_.push_back(p);
      Place(item + 1);
      placed_.pop_back();
      times_[static_cast<size_t>(p)].Pop();
    }
  }

  const GradientLanes& lanes_;
  std::vector<LaneTimes> times_;
  std::vector<int> placed_;
  std::vector<int> best_;
  double best_end_ = 0;
  std::vector<double> least_rest_;  // of items from a number on, each where it takes the least
  int looked_at_ = 0;
};

}  // namespace

GradientPlacement GroupGradients(const GradientLanes& lanes, const std::vector<int>& processors) {
  const size_t count = lanes.items.size();
  GradientPlacement placement = {std::vector<int>(count), std::vector<int>(count),
                                 std::vector<double>(count), 0};
  std::vector<LaneTimes> times = EmptyLanes(lanes);
  for (size_t i = 0; i < count; ++i)
    times[static_cast<size_t>(processors[i])].Push(static_cast<int>(i));
  for (const LaneTimes& lane : times) lane.WriteTo(placement);
  placement.end_seconds = EndOf(lanes, times);
  return placement;
}

GradientPlacement PlaceGradients(const GradientLanes& lanes, const std::vector<int>& start) {
  return GroupGradients(lanes, Search(lanes, start).Run());
}

}  // namespace runnel
