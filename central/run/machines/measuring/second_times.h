#pragma once

// A second measurement of the workers on central's host, before the first plan. The first one takes
// place while some of them are idle, and what a shared machine gives them differs by a quarter from
// one moment to the next. The second one is short and is the load of training: all workers compute
// at the same time, each another run of layers. Pure functions and a value.

#include <cstdint>
#include <map>
#include <vector>

#include "proto/base/plan/layer_range.h"

namespace runnel {

// The model in `count` runs of layers that take about as long each, fewer if it has fewer layers.
// count >= 1.
std::vector<LayerRange> RunsAlikeInTime(const std::vector<double>& layer_seconds, int count);

// Seconds here are those of a processor.
class SecondTimes {
 public:
  // Ratios of one class that are within this of one another agree.
  static constexpr double kAgree = 1.1;
  // Devices that compute at the same time have no more than this many times the processors.
  static constexpr double kAtOnce = 1.1;

  // The device is asked for a range that took `first_seconds` at first.
  void Ask(int device, const LayerRange& range, double first_seconds) {
    asked_[device] = {range, first_seconds, 0};
  }
  // share: of a processor, that it had meanwhile.
  void Add(int device, double seconds, double share) {
    asked_.at(device).second_seconds = seconds;
    asked_.at(device).share = share;
  }
  void Clear() { asked_.clear(); }

  const LayerRange& RangeOf(int device) const { return asked_.at(device).range; }
  // What the first times of these devices, which are alike, are to be multiplied with: the median of
  // second over first time where at least two devices agree on it; half of the way there where they
  // do not, where only one has answered, or where they did not measure at the same time; 1 where none
  // has. That they did not shows where all devices together had more than the host's processors (0:
  // not known how many).
  double ScaleOf(const std::vector<int>& devices, int64_t processors) const;

 private:
  struct Asked {
    LayerRange range;
    double first_seconds = 0;
    double second_seconds = 0;  // 0: no answer yet
    double share = 0;
  };
  std::map<int, Asked> asked_;
};

}  // namespace runnel
