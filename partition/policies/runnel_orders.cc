#include "partition/policies/runnel_orders.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

namespace runnel::policies {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kEnumeratedDevices = 6;
constexpr size_t kBestOrders = 16;
// Precision of the closed form while orders are compared; moves that gain less are not made.
constexpr double kPrecision = 1e-3;
// Devices whose times and rates differ by less count as one where orders are kept: measured ones are
// never equal.
constexpr double kAlike = 0.1;
// Where the closed form is only a bound, orders this near are simulated too, and more of them if
// pipelines fill and drain.
constexpr double kNear = 1.06;
constexpr double kNearDrained = 1.2;
// Devices beyond this many hardly ever gain device_charge each: n alike would have to make
// n - 1 devices faster by 1 / n.
constexpr int kMostStages = 28;
constexpr size_t kFastestInPool = 24;
constexpr size_t kPartnersInPool = 16;
// SearchTables::steps, about 10 ns each.
constexpr int64_t kBudget = 12'000'000;

// Whether frames, coding or computing may have to wait for one another, beyond the closed form.
bool MayWait(const PipelineModel& model) {
  if (!model.host_processors.empty()) return true;
  for (const std::vector<LinkSpeed>& row : model.speeds) {
    for (const LinkSpeed& speed : row) {
      if (speed.medium >= 0) return true;
    }
  }
  const auto works = [](const CodecCost& codec) {
    return codec.forward_works || codec.backward_works;
  };
  const auto has_lane = [](const DeviceCost& device) {
    return device.codec_seconds_per_byte > 0 && !device.shares_processor;
  };
  return std::any_of(model.codecs.begin(), model.codecs.end(), works) &&
         std::any_of(model.devices.begin(), model.devices.end(), has_lane);
}

}  // namespace

OrderClimb::OrderClimb(TablesByNoise& tables, int64_t max_cap)
    : tables_(tables),
      model_(tables.front().model()),
      rating_(tables, max_cap),
      limits_(rating_.limits_memory()),
      near_(DrainsEvery(model_) > 0 ? kNearDrained
            : MayWait(model_)       ? kNear
                                    : 1) {
  pool_ = Pool();
  equal_ = FirstAlike(0);
  alike_ = FirstAlike(kAlike);
}

bool OrderClimb::BudgetIsSpent() const { return StepsOf(tables_) > kBudget; }

int OrderClimb::MostStages() const {
  return std::min({tables_.front().blocks(), static_cast<int>(pool_.size()) + 1, kMostStages});
}

// The fastest devices, and those that make the fastest pair with device 0.
std::vector<int> OrderClimb::Pool() const {
  const int devices = static_cast<int>(model_.devices.size());
  std::vector<int> all(devices - 1);
  std::iota(all.begin(), all.end(), 1);
  if (all.size() <= kFastestInPool + kPartnersInPool) return all;
  const int last = model_.layers() - 1;
  const int middle = last / 2;
  const auto alone = [&](int device) { return ComputeSeconds(model_, device, 0, last); };
  const int smallest =
      static_cast<int>(std::min_element(model_.raw_bytes.begin(), model_.raw_bytes.end() - 1) -
                       model_.raw_bytes.begin());
  const auto with_first = [&](int device) {
    double least = kInfinity;
    for (const int cut : {middle, smallest}) {
      for (size_t codec = 0; codec < model_.codecs.size(); ++codec) {
        const auto way = [&](Direction direction) {
          return WayCost(model_, static_cast<int>(codec), cut, 0, device, direction).total();
        };
        least = std::min(least, way(Direction::kForward) + way(Direction::kBackward));
      }
    }
    return least + ComputeSeconds(model_, device, middle + 1, last);
  };
  std::vector<int> pool;
  const auto add = [&](size_t count, const auto& key) {
    std::vector<std::pair<double, int>> keyed;
    for (const int device : all) keyed.emplace_back(key(device), device);
    std::sort(keyed.begin(), keyed.end());
    for (size_t i = 0; i < count; ++i) pool.push_back(keyed[i].second);
  };
  add(kPartnersInPool, with_first);
  add(kFastestInPool, alone);
  std::sort(pool.begin(), pool.end());
  pool.erase(std::unique(pool.begin(), pool.end()), pool.end());
  return pool;
}

// By device, the first one of the pool that is like it: whose computation and links differ by no
// more than `share`. With a share of 0, exchanging the two changes nothing in whatever order.
std::vector<int> OrderClimb::FirstAlike(double share) const {
  std::vector<int> others = pool_;
  others.push_back(0);
  const auto near = [share](double a, double b) {
    return std::abs(a - b) <= share * std::max(a, b);
  };
  const auto are_links_alike = [&](const LinkSpeed& a, const LinkSpeed& b) {
    return a.medium == b.medium && a.hops == b.hops && near(a.rate.mbps(), b.rate.mbps()) &&
           near(a.delay_seconds, b.delay_seconds);
  };
  const auto are_alike = [&](int a, int b) {
    const std::vector<double>& seconds_a = tables_.front().StagesOf(a).seconds;
    const std::vector<double>& seconds_b = tables_.front().StagesOf(b).seconds;
    if (!(model_.devices[a] == model_.devices[b]) ||
        !are_links_alike(model_.speeds[a][b], model_.speeds[b][a]) ||
        !std::equal(seconds_a.begin(), seconds_a.end(), seconds_b.begin(), near)) {
      return false;
    }
    return std::all_of(others.begin(), others.end(), [&](int other) {
      return other == a || other == b ||
             (are_links_alike(model_.speeds[a][other], model_.speeds[b][other]) &&
              are_links_alike(model_.speeds[other][a], model_.speeds[other][b]));
    });
  };
  std::vector<int> first(model_.devices.size());
  std::iota(first.begin(), first.end(), 0);
  for (size_t i = 0; i < pool_.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (first[pool_[j]] != pool_[j] || !are_alike(pool_[j], pool_[i])) continue;
      first[pool_[i]] = pool_[j];
      break;
    }
  }
  return first;
}

std::vector<int> OrderClimb::Representative(std::vector<int> order) const {
  std::map<int, std::vector<int>::const_iterator> next;  // by class: where its search goes on
  for (int& device : order) {
    if (device == 0) continue;
    const int first = equal_[device];
    auto& from = next.try_emplace(first, pool_.begin()).first->second;
    from = std::find_if(from, pool_.end(), [&](int one) { return equal_[one] == first; });
    device = *from++;
  }
  return order;
}

std::vector<std::vector<int>> OrderClimb::Starts() const {
  std::vector<std::vector<int>> starts;
  const auto add_sorted = [&](const auto& key) {
    std::vector<int> order = pool_;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
    order.insert(order.begin(), 0);
    starts.push_back(std::move(order));
  };
  const int last = model_.layers() - 1;
  const auto alone = [&](int device) { return ComputeSeconds(model_, device, 0, last); };
  add_sorted(alone);
  add_sorted([](int device) { return device; });
  if (limits_) {
    add_sorted([&](int device) {
      const int64_t limit = model_.devices[device].memory_limit_bytes;
      return limit == 0 ? -kInfinity : -static_cast<double>(limit);
    });
  }
  // From each device go to the one that it reaches soonest, among those that are not much slower.
  const int codec = static_cast<int>(model_.codecs.size()) - 1;
  std::vector<int> left = pool_;
  std::vector<int> nearest = {0};
  while (!left.empty()) {
    const int from = nearest.back();
    const auto reached = [&](int to) {
      return WayCost(model_, codec, last / 2, from, to, Direction::kForward).total() +
             WayCost(model_, codec, last / 2, from, to, Direction::kBackward).total() +
             alone(to) / static_cast<double>(pool_.size() + 1);
    };
    const auto next = std::min_element(left.begin(), left.end(),
                                       [&](int a, int b) { return reached(a) < reached(b); });
    nearest.push_back(*next);
    left.erase(next);
  }
  starts.push_back(std::move(nearest));
  return starts;
}

void OrderClimb::Record(const std::vector<int>& order, const Value& value) {
  const auto are_alike = [this](int a, int b) { return alike_[a] == alike_[b]; };
  const auto same = [&](const auto& one) {
    return std::equal(one.second.begin(), one.second.end(), order.begin(), order.end(), are_alike);
  };
  const auto known = std::find_if(best_.begin(), best_.end(), same);
  if (known != best_.end() && known->first < value) return;
  if (known != best_.end()) best_.erase(known);
  best_.emplace_back(value, order);
  std::stable_sort(best_.begin(), best_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (best_.size() <= kBestOrders) return;
  // The worst one that is not the best of its length goes.
  std::set<size_t> lengths;
  size_t worst = best_.size();
  for (size_t i = 0; i < best_.size(); ++i) {
    if (!lengths.insert(best_[i].second.size()).second) worst = i;
  }
  if (worst < best_.size()) best_.erase(best_.begin() + static_cast<std::ptrdiff_t>(worst));
}

std::optional<OrderClimb::Value> OrderClimb::Try(const std::vector<int>& given, const Value& bar) {
  const std::vector<int> order = Representative(given);
  const auto rated = rated_.find(order);
  if (rated != rated_.end()) {
    return rated->second < bar ? std::optional<Value>(rated->second) : std::nullopt;
  }
  const auto known = failed_.find(order);
  if (known != failed_.end() && !(known->second < bar)) return std::nullopt;
  Value value = {0, kInfinity};
  if (limits_) value.missing_bytes = rating_.MissingBytes(order);
  if (value.missing_bytes == 0) {
    const std::optional<Candidate> found =
        rating_.Beat(order, bar.missing_bytes > 0 ? kInfinity : bar.charged, kPrecision);
    // The order fits with caps of 1, but not with the weight-gradients that the schedule defers.
    value = found.has_value() ? Value{0, found->charged} : Value{1, kInfinity};
    if (!found.has_value() && bar.missing_bytes == 0) value = bar;
  }
  if (!(value < bar)) {
    failed_.insert_or_assign(order, bar);
    return std::nullopt;
  }
  rated_.emplace(order, value);
  Record(order, value);
  return value;
}

void OrderClimb::TryAll() {
  std::vector<std::vector<int>> orders = {{0}};
  for (size_t i = 0; i < orders.size(); ++i) {
    if (static_cast<int>(orders[i].size()) == MostStages()) continue;
    for (const int device : pool_) {
      if (std::find(orders[i].begin(), orders[i].end(), device) != orders[i].end()) continue;
      std::vector<int> longer = orders[i];
      longer.push_back(device);
      orders.push_back(std::move(longer));
    }
  }
  for (const std::vector<int>& order : orders) {
    Value bar = {kInfinity, kInfinity};
    if (!best_.empty()) bar = {best_[0].first.missing_bytes, best_[0].first.charged * near_};
    Try(order, bar);
  }
}

std::vector<std::vector<int>> OrderClimb::Neighbours(const std::vector<int>& order) const {
  std::vector<std::vector<int>> orders;
  const auto add = [&](const auto& change) { change(orders.emplace_back(order)); };
  const int stages = static_cast<int>(order.size());
  std::vector<int> unused;
  for (const int device : pool_) {
    if (std::find(order.begin(), order.end(), device) == order.end()) unused.push_back(device);
  }
  for (int i = 1; i < stages; ++i) add([&](auto& one) { one.erase(one.begin() + i); });
  for (const int device : unused) {
    for (int i = 1; i <= stages && stages < MostStages(); ++i) {
      add([&](auto& one) { one.insert(one.begin() + i, device); });
    }
    for (int i = 1; i < stages; ++i) add([&](auto& one) { one[i] = device; });
  }
  for (int i = 1; i < stages; ++i) {
    for (int j = i + 1; j < stages; ++j) {
      add([&](auto& one) { std::swap(one[i], one[j]); });
      if (j == i + 1) continue;
      add([&](auto& one) {
        std::rotate(one.begin() + i, one.begin() + i + 1, one.begin() + j + 1);
      });
      add([&](auto& one) { std::rotate(one.begin() + i, one.begin() + j, one.begin() + j + 1); });
      add([&](auto& one) { std::reverse(one.begin() + i, one.begin() + j + 1); });
    }
  }
  return orders;
}

void OrderClimb::ClimbFrom(std::vector<int> order, Value value) {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::vector<int>& next : Neighbours(order)) {
      if (BudgetIsSpent()) return;
      // Where the closed form is only a bound, orders close to it are kept for the simulation.
      const Value bar = {value.missing_bytes, value.charged * near_};
      const std::optional<Value> better = Try(next, bar);
      const Value gains = {value.missing_bytes, value.charged * (1 - kPrecision)};
      if (!better.has_value() || !(*better < gains)) continue;
      order = std::move(next);
      value = *better;
      moved = true;
      break;
    }
  }
}

void OrderClimb::TryPrefixes(const std::vector<int>& devices) {
  std::optional<Value> best;
  std::vector<int> from;
  for (int count = 1; count <= MostStages(); ++count) {
    if (BudgetIsSpent()) break;
    const std::vector<int> order(devices.begin(), devices.begin() + count);
    const std::optional<Value> value = Try(order, best.value_or(Value{kInfinity, kInfinity}));
    if (!value.has_value()) continue;
    best = value;
    from = order;
  }
  if (best.has_value()) ClimbFrom(std::move(from), *best);
}

std::vector<std::vector<int>> OrderClimb::Run() {
  if (static_cast<int>(model_.devices.size()) <= kEnumeratedDevices) {
    TryAll();
  } else {
    for (const std::vector<int>& start : Starts()) TryPrefixes(start);
  }
  std::vector<std::vector<int>> orders;
  for (const auto& [value, order] : best_) {
    if (value.missing_bytes == 0) orders.push_back(order);
  }
  return orders;
}

}  // namespace runnel::policies
