#pragma once

// Assigns weight-gradients to processors. Only the update waits for them, so they run beside the
// input-gradients and beside one another (Mandheling, MobiCom 2022, section 3.3). A pure function;
// any thread.

#include <vector>

namespace runnel {

// Instructions that run one after the other on one processor, whichever that is.
struct GradientItem {
  double ready_seconds = 0;     // when what it reads is there
  std::vector<double> seconds;  // by processor, with its copies; kUnsupported: it lacks it
};

// Times count from the start of the input-gradients. A processor runs its items in their order, in
// groups: a group's operands are copied before it, its results after it.
struct GradientLanes {
  std::vector<GradientItem> items;
  // Earliest start of each processor's first item.
  std::vector<double> free_seconds;
  std::vector<double> group_seconds;  // by processor: of a group beside its items: the switches
  double least_end_seconds = 0;       // when the input-gradients are done

  int processors() const { return static_cast<int>(free_seconds.size()); }
};

struct GradientPlacement {
  std::vector<int> processors;        // by item
  std::vector<int> groups;            // by item: number of its group among those of its processor
  std::vector<double> begin_seconds;  // by item, of a group's first one with its switch
  double end_seconds = 0;             // end of all items
};

// Groups the items of these processors so that each processor is done as early as possible; among
// equals the larger groups.
GradientPlacement GroupGradients(const GradientLanes& lanes, const std::vector<int>& processors);

// The placement that ends first; `start`, where no other ends before it. Exact while there are not
// more than kMostPlacements to be looked at, which bounds leave few of; else the best of those,
// after which no item alone would be better elsewhere. `start` must be supported.
inline constexpr int kMostPlacements = 200000;
GradientPlacement PlaceGradients(const GradientLanes& lanes, const std::vector<int>& start);

}  // namespace runnel
