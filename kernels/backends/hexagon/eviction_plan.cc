#include "kernels/backends/hexagon/eviction_plan.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "kernels/backends/hexagon/dsp/regions.h"

namespace runnel::hexagon {
namespace {

// The rule's pattern comes round after some cycles.
constexpr int kFirstCycles = 8;
constexpr int kCountedCycles = 16;
// Bound of the tried cycles over all regions: a program is made ready within a moment.
constexpr int64_t kMostUses = 4'000'000;

uint64_t BytesOf(const std::vector<uint32_t>& regions, const std::vector<bool>& keeps, bool kept) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < regions.size(); ++i)
    bytes += keeps[i] == kept ? RegionBytes(regions[i]) : 0;
  return bytes;
}

class Search {
 public:
  Search(const std::vector<uint32_t>& regions, uint32_t memory_bytes)
      : regions_(regions),
        memory_bytes_(memory_bytes),
        tries_(kMostUses / static_cast<int64_t>((kFirstCycles + kCountedCycles) * regions.size() *
                                                regions.size())),
        best_(regions.size(), false),
        best_packed_(PackedPerCycle(regions, best_, memory_bytes)) {}

  // Gives places to one region after the other while there is room, the largest or the smallest
  // first.
  void Fill(bool largest_first) {
    std::vector<size_t> order(regions_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return largest_first ? regions_[a] > regions_[b] : regions_[a] < regions_[b];
    });
    std::vector<bool> keeps(regions_.size(), false);
    for (const size_t region : order) {
      keeps[region] = true;
      if (!Try(keeps)) keeps[region] = false;
    }
  }

  // Improves the best plan by one region more or less, or by one in another's place.
  void Improve() {
    double before;
    do {
      before = best_packed_;
      for (size_t i = 0; i < regions_.size(); ++i) {
        for (size_t j = i; j < regions_.size() && tries_ > 0; ++j) {
          std::vector<bool> keeps = best_;
          if (j > i && keeps[i] == keeps[j]) continue;
          keeps[i] = !keeps[i];
          if (j > i) keeps[j] = !keeps[j];
          Try(keeps);
        }
      }
    } while (best_packed_ < before && tries_ > 0);
  }

  const std::vector<bool>& best() const { return best_; }
  double best_packed() const { return best_packed_; }

 private:
  // Whether there is room for all.
  bool Try(const std::vector<bool>& keeps) {
    --tries_;
    const double packed = PackedPerCycle(regions_, keeps, memory_bytes_);
    if (packed < best_packed_) {
      best_packed_ = packed;
      best_ = keeps;
    }
    return packed < std::numeric_limits<double>::infinity();
  }

  const std::vector<uint32_t>& regions_;
  const uint32_t memory_bytes_;
  int64_t tries_;
  std::vector<bool> best_;
  double best_packed_;
};

}  // namespace

double PackedPerCycle(const std::vector<uint32_t>& regions, const std::vector<bool>& keeps,
                      uint32_t memory_bytes) {
  constexpr double kNoRoom = std::numeric_limits<double>::infinity();
  const uint64_t kept_bytes = BytesOf(regions, keeps, true);
  if (kept_bytes > memory_bytes) return kNoRoom;
  // Simulates the rule for the other regions; the memory is not touched.
  static uint8_t memory = 0;
  const auto rule = std::make_unique<Regions>();
  rule->Set(&memory, static_cast<uint32_t>(memory_bytes - kept_bytes));
  double packed = 0;
  for (int cycle = 0; cycle < kFirstCycles + kCountedCycles; ++cycle) {
    for (size_t i = 0; i < regions.size(); ++i) {
      if (keeps[i]) continue;
      bool fresh = false;
      const RegionKey key = {static_cast<uint32_t>(i), 0, regions[i]};
      if (rule->Use(key, 1, fresh) == nullptr) {
        // Without any room the region is packed each time, as with the rule alone.
        if (kept_bytes > 0) return kNoRoom;
        fresh = true;
      }
      if (fresh && cycle >= kFirstCycles) packed += RegionBytes(regions[i]);
    }
  }
  return packed / kCountedCycles;
}

EvictionPlan PlanEvictions(const std::vector<uint32_t>& regions, uint32_t memory_bytes) {
  EvictionPlan plan;
  plan.places.assign(regions.size(), -1);
  const std::vector<bool> none(regions.size(), false);
  if (regions.size() >= kMostPlannedRegions || BytesOf(regions, none, false) <= memory_bytes)
    return plan;
  Search search(regions, memory_bytes);
  search.Fill(/*largest_first=*/true);
  search.Fill(/*largest_first=*/false);
  search.Improve();
  plan.packed_per_cycle = search.best_packed();
  // Closer figures may come of where the counting began.
  const double rule = PackedPerCycle(regions, none, memory_bytes);
  const uint32_t largest = *std::max_element(regions.begin(), regions.end());
  if (rule - search.best_packed() <= static_cast<double>(RegionBytes(largest)) / kCountedCycles) {
    plan.packed_per_cycle = rule;
    return plan;
  }
  for (size_t i = 0; i < regions.size(); ++i) {
    if (!search.best()[i]) continue;
    plan.places[i] = plan.kept_bytes;
    plan.kept_bytes += static_cast<uint32_t>(RegionBytes(regions[i]));
  }
  return plan;
}

}  // namespace runnel::hexagon
