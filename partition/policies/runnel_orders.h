#pragma once

// Chooses devices and their order: the policy `runnel` tries all orders of few devices, and climbs
// from several starts if there are many.

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "partition/policies/runnel_rating.h"

namespace runnel::policies {

class OrderClimb {
 public:
  // `tables` must outlive it.
  OrderClimb(SearchTables& tables, int64_t max_cap);

  // Orders with device 0 first, the best one first, no more than a few.
  std::vector<std::vector<int>> Run();

 private:
  struct Value {
    double missing_bytes;
    double charged;

    bool operator<(const Value& other) const {
      return missing_bytes != other.missing_bytes ? missing_bytes < other.missing_bytes
                                                  : charged < other.charged;
    }
  };

  void TryAll();
  void TryPrefixes(const std::vector<int>& devices);
  void ClimbFrom(std::vector<int> order, Value value);
  // The value of an order if it is below `bar`.
  std::optional<Value> Try(const std::vector<int>& order, const Value& bar);
  std::vector<std::vector<int>> Neighbours(const std::vector<int>& order) const;
  std::vector<std::vector<int>> Starts() const;
  std::vector<int> Pool() const;
  void Record(const std::vector<int>& order, const Value& value);
  bool BudgetIsSpent() const;
  int MostStages() const;

  SearchTables& tables_;
  const PipelineModel& model_;
  OrderRating rating_;
  const bool limits_;      // whether devices have memory limits
  const double near_;      // orders charged this much more are kept for the simulation too
  std::vector<int> pool_;  // devices that may be worth it, without device 0
  std::map<std::vector<int>, Value> rated_;
  std::map<std::vector<int>, Value> failed_;  // by order: the bar that it was not below
  std::vector<std::pair<Value, std::vector<int>>> best_;
};

}  // namespace runnel::policies
