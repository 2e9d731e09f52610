#include "partition/policies/runnel_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace runnel::policies {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Keeps a period that divides a round trip exactly from costing one more in flight.
constexpr double kRounding = 1e-9;
constexpr int kMedia = 2;
// Labels of a state where links share media.
constexpr int kLabels = 6;

// Links' media have numbers >= 0, and -1 is none.
int MediumOfHost(int host) { return -2 - host; }

}  // namespace

OrderSearch::OrderSearch(SearchTables& tables, std::vector<int> order)
    : tables_(tables),
      model_(tables.model()),
      order_(std::move(order)),
      stages_(static_cast<int>(order_.size())),
      blocks_(tables.blocks()) {
  std::map<int, int> links_on;   // by medium
  std::map<int, int> stages_on;  // by host
  for (int n = 0; n < stages_; ++n) {
    computing_.push_back(&tables.StagesOf(order_[n]));
    overhead_.push_back(OverheadSeconds(model_, order_[n], n == 0, n + 1 == stages_));
    if (model_.devices[order_[n]].host >= 0) ++stages_on[model_.devices[order_[n]].host];
    if (n + 1 == stages_) continue;
    links_.push_back(&tables.LinksBetween(order_[n], order_[n + 1]));
    for (const std::vector<Link>& pairs : *links_.back()) {
      widest_ = std::max(widest_, static_cast<int>(pairs.size()));
    }
    const int down = model_.speeds[order_[n]][order_[n + 1]].medium;
    const int up = model_.speeds[order_[n + 1]][order_[n]].medium;
    one_air_.push_back(down >= 0 && down == up);
    if (down >= 0) ++links_on[down];
    if (up >= 0 && up != down) ++links_on[up];
  }
  std::vector<std::pair<int, int>> shared;  // links, medium
  for (const auto& [medium, links] : links_on) {
    if (links > 1) shared.emplace_back(-links, medium);
  }
  for (const auto& [host, stages] : stages_on) {
    if (stages > model_.host_processors[host]) shared.emplace_back(-stages, MediumOfHost(host));
  }
  std::sort(shared.begin(), shared.end());
  media_ = std::min<int>(kMedia, static_cast<int>(shared.size()));
  kept_ = media_ > 0 ? kLabels : 1;
  const auto number_of = [&](int medium) {
    for (int m = 0; m < media_; ++m) {
      if (shared[m].second == medium) return m;
    }
    return -1;
  };
  for (const int device : order_) {
    const int host = model_.devices[device].host;
    host_medium_.push_back(host >= 0 ? number_of(MediumOfHost(host)) : -1);
  }
  for (int n = 0; n + 1 < stages_; ++n) {
    down_medium_.push_back(number_of(model_.speeds[order_[n]][order_[n + 1]].medium));
    up_medium_.push_back(number_of(model_.speeds[order_[n + 1]][order_[n]].medium));
  }
}

void OrderSearch::FillStage(Stage& stage) const {
  const DeviceCost& device = model_.devices[order_[stage.n]];
  const double seconds = computing_[stage.n]->seconds[stage.first * blocks_ + stage.last];
  double coded = 0;
  double taken = overhead_[stage.n];
  stage.codec_lane = 0;
  stage.slowest_way = 0;
  stage.air[0] = stage.air[1] = 0;
  if (const Link* above = stage.above; above != nullptr) {
    coded += above->receiver_codes;
    taken += above->receiver_takes;
    stage.codec_lane += above->receiver_codec;
  }
  if (const Link* below = stage.below; below != nullptr) {
    coded += below->sender_codes;
    taken += below->sender_takes;
    stage.codec_lane += below->sender_codec;
    stage.slowest_way = one_air_[stage.n] ? below->down_send + below->up_send
                                          : std::max(below->down_send, below->up_send);
    if (media_ > 0) {
      const int down = down_medium_[stage.n];
      const int up = up_medium_[stage.n];
      if (down >= 0) stage.air[down] += below->down_send;
      if (up >= 0) stage.air[up] += below->up_send;
    }
  }
  stage.pass = seconds * (device.forward_share + device.input_gradient_share) + coded;
  stage.total = seconds + coded + taken;
  if (const int medium = host_medium_[stage.n]; medium >= 0)
    stage.air[medium] += stage.total / model_.host_processors[device.host];
}

void OrderSearch::Keep(size_t state, const SearchLabel& label) {
  SearchLabel* const labels = &tables_.labels[state * kept_];
  int32_t& count = tables_.counts[state];
  if (kept_ == 1) {
    if (count == 0 || label.key < labels[0].key) labels[0] = label;
    count = 1;
    return;
  }
  const auto no_worse = [](const SearchLabel& a, const SearchLabel& b) {
    return a.key <= b.key && a.air[0] <= b.air[0] && a.air[1] <= b.air[1];
  };
  for (int i = 0; i < count; ++i) {
    if (no_worse(labels[i], label)) return;
  }
  count = static_cast<int32_t>(
      std::remove_if(labels, labels + count,
                     [&](const SearchLabel& one) { return no_worse(label, one); }) -
      labels);
  if (count < kept_) {
    labels[count++] = label;
    return;
  }
  // The one with the least air stays, and of the others those with the least keys.
  const auto air = [](const SearchLabel& one) { return one.air[0] + one.air[1]; };
  SearchLabel* const spared =
      std::min_element(labels, labels + count,
                       [&](const SearchLabel& a, const SearchLabel& b) { return air(a) < air(b); });
  SearchLabel* worst = air(label) < air(*spared) ? spared : nullptr;
  for (int i = 0; i < count && worst != spared; ++i) {
    if (labels + i == spared) continue;
    if (worst == nullptr || labels[i].key > worst->key) worst = labels + i;
  }
  if (worst == spared || label.key < worst->key) *worst = label;
}

template <typename Extend>
void OrderSearch::Solve(double limit, const Extend& extend) {
  const size_t states = static_cast<size_t>(stages_) * blocks_ * widest_;
  tables_.labels.resize(std::max(tables_.labels.size(), states * kept_));
  tables_.counts.assign(states, 0);
  int64_t steps = 0;
  SearchLabel label;
  const auto try_stage = [&](Stage& stage, size_t state, int below) {
    ++steps;
    FillStage(stage);
    if (stage.total > limit || stage.codec_lane > limit || stage.slowest_way > limit) return;
    label.last = stage.last;
    label.below = below;
    if (below < 0) {
      if (extend(stage, nullptr, label)) Keep(state, label);
      return;
    }
    const size_t next = StateOf(stage.n + 1, stage.last + 1, below);
    steps += tables_.counts[next];
    for (int32_t i = 0; i < tables_.counts[next]; ++i) {
      label.next = i;
      if (extend(stage, &tables_.labels[next * kept_ + i], label)) Keep(state, label);
    }
  };
  for (int n = stages_ - 1; n >= 0; --n) {
    const int behind = stages_ - 1 - n;
    for (int first = n; first < (n == 0 ? 1 : blocks_ - behind); ++first) {
      const int pairs_above = n == 0 ? 1 : static_cast<int>((*links_[n - 1])[first - 1].size());
      for (int above = 0; above < pairs_above; ++above) {
        const size_t state = StateOf(n, first, above);
        Stage stage{n, first, 0, n == 0 ? nullptr : &(*links_[n - 1])[first - 1][above]};
        for (int last = behind == 0 ? blocks_ - 1 : first; last < blocks_ - behind; ++last) {
          stage.last = last;
          if (computing_[n]->seconds[first * blocks_ + last] > limit) {
            if (computing_[n]->grows) break;
            continue;
          }
          if (behind == 0) {
            try_stage(stage, state, -1);
            continue;
          }
          const std::vector<Link>& pairs = (*links_[n])[last];
          for (size_t below = 0; below < pairs.size(); ++below) {
            stage.below = &pairs[below];
            try_stage(stage, state, static_cast<int>(below));
          }
        }
      }
    }
  }
  tables_.steps += steps;
}

const SearchLabel* OrderSearch::BestRoot(double air_limit) const {
  const SearchLabel* best = nullptr;
  for (int32_t i = 0; i < tables_.counts[0]; ++i) {
    const SearchLabel& label = tables_.labels[i];
    if (std::max(label.air[0], label.air[1]) > air_limit) continue;
    if (best == nullptr || label.key < best->key) best = &label;
  }
  return best;
}

double OrderSearch::LeastKey() const {
  const SearchLabel* const root = BestRoot(kInfinity);
  return root == nullptr ? kInfinity : root->key;
}

std::optional<Placement> OrderSearch::Trace(const SearchLabel* label) const {
  if (label == nullptr) return std::nullopt;
  Placement placement;
  placement.order = order_;
  for (int n = 0; n < stages_; ++n) {
    placement.last_layer.push_back(tables_.EndOf(label->last));
    placement.caps.push_back(label->cap);
    if (n + 1 == stages_) break;
    placement.codecs.push_back((*links_[n])[label->last][label->below].codec);
    const size_t next = StateOf(n + 1, label->last + 1, label->below);
    label = &tables_.labels[next * kept_ + label->next];
  }
  return placement;
}

int64_t OrderSearch::MissingBytesOf(const Stage& stage) const {
  const int64_t limit = model_.devices[order_[stage.n]].memory_limit_bytes;
  if (limit == 0) return 0;
  const StageHold hold = tables_.Hold(stage.first, stage.last, stage.above, stage.below);
  return std::max<int64_t>(0, StageMemoryBytes(model_, hold, {1, 0}, stages_ - stage.n) - limit);
}

// The caps before a stage are not known yet: it may defer most where they are the highest.
void OrderSearch::FillDeferred(int64_t max_cap) {
  deferred_.clear();
  if (model_.deferred == nullptr) return;
  max_cap_ = max_cap;
  for (int n = 0; n < stages_; ++n) {
    std::vector<int64_t> caps(n + 1, max_cap);
    for (int64_t cap = 1; cap <= max_cap; ++cap) {
      caps[n] = cap;
      deferred_.push_back(model_.deferred(caps)[n]);
    }
  }
}

bool OrderSearch::FitsMemory(const Stage& stage, int64_t cap) const {
  const int64_t limit = model_.devices[order_[stage.n]].memory_limit_bytes;
  if (limit == 0) return true;
  StageOrder order = {cap, 0};
  if (!deferred_.empty()) order.deferred_weight_gradients = deferred_[stage.n * max_cap_ + cap - 1];
  const StageHold hold = tables_.Hold(stage.first, stage.last, stage.above, stage.below);
  return StageMemoryBytes(model_, hold, order, stages_ - stage.n) <= limit;
}

double OrderSearch::LowestPeriod() {
  Solve(kInfinity, [](const Stage& stage, const SearchLabel* next, SearchLabel& label) {
    label.key = std::max({stage.total, stage.slowest_way, stage.codec_lane});
    if (next != nullptr) label.key = std::max(label.key, next->key);
    return true;
  });
  return LeastKey();
}

double OrderSearch::MissingBytes() {
  Solve(kInfinity, [this](const Stage& stage, const SearchLabel* next, SearchLabel& label) {
    label.key = static_cast<double>(MissingBytesOf(stage)) + (next != nullptr ? next->key : 0);
    return true;
  });
  return LeastKey();
}

std::optional<Placement> OrderSearch::Reach(double period, int64_t max_cap) {
  const double limit = period * (1 + kRounding);
  FillDeferred(max_cap);
  Solve(limit, [&](const Stage& stage, const SearchLabel* next, SearchLabel& label) {
    double u = 0;
    label.cap = 1;
    label.air[0] = stage.air[0];
    label.air[1] = stage.air[1];
    if (next != nullptr) {
      for (int m = 0; m < media_; ++m) {
        label.air[m] += next->air[m];
        if (label.air[m] > limit) return false;
      }
      u = next->key + stage.below->round / period;
      // Beyond every limit, and perhaps of int64_t.
      if (u > static_cast<double>(max_cap)) return false;
      label.cap = std::max<int64_t>(
          next->cap, static_cast<int64_t>(std::ceil(u + stage.total / period - kRounding)));
    }
    if (label.cap > max_cap || !FitsMemory(stage, label.cap)) return false;
    label.key = std::max(u, static_cast<double>(label.cap - 1)) + stage.pass / period;
    return true;
  });
  return Trace(BestRoot(limit));
}

std::optional<Placement> OrderSearch::SoonestDrained(int64_t micro_batches, int64_t max_cap) {
  const double m = static_cast<double>(micro_batches);
  const int64_t most = std::min(max_cap, micro_batches);
  FillDeferred(most);
  Solve(kInfinity, [&](const Stage& stage, const SearchLabel* next, SearchLabel& label) {
    label.cap = most;
    while (label.cap > 0 && !FitsMemory(stage, label.cap)) --label.cap;
    if (label.cap == 0) return false;
    const double weight_gradient = stage.total - stage.pass;
    label.round = stage.pass;
    label.key = m * stage.total - weight_gradient;
    for (int i = 0; i < media_; ++i) label.air[i] = stage.air[i] + (next ? next->air[i] : 0);
    if (next != nullptr) {
      label.round += stage.below->round + next->round;
      label.key = std::max({label.key, stage.pass + stage.below->round + next->key,
                            label.round + (m - 1) * std::max(stage.slowest_way, stage.codec_lane)});
    }
    const auto rounds = static_cast<double>((micro_batches - 1) / label.cap + 1);
    label.key = std::max(label.key, label.round * rounds);
    if (stage.n == 0) {
      label.key += weight_gradient;
      // A medium's time: all frames of all micro-batches, and the computation at the ends before
      // and after.
      for (int i = 0; i < media_; ++i) {
        label.key = std::max(label.key, m * label.air[i] + stage.total);
      }
    }
    return true;
  });
  std::optional<Placement> placement = Trace(BestRoot(kInfinity));
  if (placement.has_value()) {
    for (int n = 1; n < stages_; ++n) {
      placement->caps[n] = std::min(placement->caps[n], placement->caps[n - 1]);
    }
  }
  return placement;
}

}  // namespace runnel::policies
