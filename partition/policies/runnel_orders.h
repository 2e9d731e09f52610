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
  // `tables`, of one model, must outlive it.
  OrderClimb(TablesByNoise& tables, int64_t max_cap);

  // Orders with device 0 first, the best one first: no more than a few, and the best one of each
  // length. Of orders that differ in devices that are alike the best one is there.
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
  std::optional<Value> Try(const std::vector<int>& given, const Value& bar);
  std::vector<std::vector<int>> Neighbours(const std::vector<int>& order) const;
  std::vector<std::vector<int>> Starts() const;
  std::vector<int> Pool() const;
  std::vector<int> FirstAlike(double share) const;
  // The order that stands for all that differ in equal devices only: it has the first ones of them.
  std::vector<int> Representative(std::vector<int> order) const;
  void Record(const std::vector<int>& order, const Value& value);
  bool BudgetIsSpent() const;
  int MostStages() const;

  TablesByNoise& tables_;
  const PipelineModel& model_;
  OrderRating rating_;
  const bool limits_;      // whether devices have memory limits
  const double near_;      // orders charged this much more are kept for the simulation too
  std::vector<int> pool_;  // devices that may be worth it, without device 0
  // By device of the pool: the first one that is equal, and the first one that is alike.
  std::vector<int> equal_;
  std::vector<int> alike_;
  std::map<std::vector<int>, Value> rated_;
  std::map<std::vector<int>, Value> failed_;  // by order: the bar that it was not below
  std::vector<std::pair<Value, std::vector<int>>> best_;
};

}  // namespace runnel::policies
