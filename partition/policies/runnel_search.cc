#include "partition/policies/runnel_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace runnel::policies {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// So that a period that divides a round trip exactly does not cost one more in flight.
constexpr double kRounding = 1e-9;

}  // namespace

OrderSearch::OrderSearch(const PipelineModel& model, std::vector<int> order, int codec)
    : model_(&model),
      order_(std::move(order)),
      codec_(codec),
      layers_(model.layers()),
      stages_(static_cast<int>(order_.size())),
      ranges_(static_cast<size_t>(stages_) * layers_ * layers_),
      links_(static_cast<size_t>(stages_) * layers_) {
  for (int n = 0; n < stages_; ++n) {
    const DeviceCost& device = model.devices[order_[n]];
    for (int first = 0; first < layers_; ++first) {
      for (int last = first; last < layers_; ++last) {
        const double total = model.compute->StageSeconds(order_[n], first, last);
        ranges_[(n * layers_ + first) * layers_ + last] = {
            total, total * (device.forward_share + device.input_gradient_share)};
      }
    }
    if (n + 1 == stages_) continue;
    for (int last = 0; last < layers_; ++last) {
      const WaySeconds down =
          WayCost(model, codec, last, order_[n], order_[n + 1], Direction::kForward);
      const WaySeconds up =
          WayCost(model, codec, last, order_[n], order_[n + 1], Direction::kBackward);
      links_[n * layers_ + last] = {
          model.half_duplex ? down.send + up.send : std::max(down.send, up.send),
          down.total() + up.total(),
          down.encode + up.decode,
          down.decode + up.encode,
          down.sender_codes + up.receiver_codes,
          down.receiver_codes + up.sender_codes,
          down.sender_takes + up.receiver_takes,
          down.receiver_takes + up.sender_takes};
    }
  }
}

double OrderSearch::Taken(int n, int first, int last) const {
  return OverheadSeconds(*model_, order_[n], n == 0, n + 1 == stages_) +
         (n > 0 ? LinkOf(n - 1, first - 1).receiver_takes : 0) +
         (n + 1 < stages_ ? LinkOf(n, last).sender_takes : 0);
}

double OrderSearch::Coded(int n, int first, int last) const {
  return (n > 0 ? LinkOf(n - 1, first - 1).receiver_codes : 0) +
         (n + 1 < stages_ ? LinkOf(n, last).sender_codes : 0);
}

double OrderSearch::Slowest(int n, int first, int last) const {
  double codec_lane = n > 0 ? LinkOf(n - 1, first - 1).receiver_codec : 0;
  double slowest = RangeOf(n, first, last).total + Coded(n, first, last) + Taken(n, first, last);
  if (n + 1 < stages_) {
    codec_lane += LinkOf(n, last).sender_codec;
    slowest = std::max(slowest, LinkOf(n, last).slowest);
  }
  return std::max(slowest, codec_lane);
}

double OrderSearch::LowestPeriod() const {
  // behind[l]: of layers l.. on stages n..
  std::vector<double> behind(layers_ + 1, kInfinity);
  for (int n = stages_ - 1; n >= 0; --n) {
    std::vector<double> here(layers_ + 1, kInfinity);
    for (int first = n; first < layers_; ++first) {
      if (n + 1 == stages_) {
        here[first] = Slowest(n, first, layers_ - 1);
        continue;
      }
      for (int last = first; last + 1 < layers_; ++last) {
        here[first] = std::min(here[first], std::max(Slowest(n, first, last), behind[last + 1]));
      }
    }
    behind = std::move(here);
  }
  return behind[0];
}

std::optional<Placement> OrderSearch::Reach(double period, int64_t max_cap) const {
  const double limit = period * (1 + kRounding);
  // value[n][l]: the least max(u, c - 1) + pass / T of layers l.. on stages n.. ; with it the end
  // of stage n and its cap.
  struct Choice {
    double value = kInfinity;
    int last = 0;
    int64_t cap = 0;
  };
  std::vector<std::vector<Choice>> best(stages_, std::vector<Choice>(layers_ + 1));
  // The caps before stage n are not known yet: it may defer most where they are the highest.
  const auto fits = [&](int n, int first, int last, int64_t cap) {
    const int64_t memory = model_->devices[order_[n]].memory_limit_bytes;
    if (memory == 0) return true;
    std::vector<int64_t> caps(n + 1, max_cap);
    caps[n] = cap;
    const StageOrder order = StageOrders(model_->deferred, caps)[n];
    return StageMemoryBytes(*model_, first, last, order, stages_ - n) <= memory;
  };
  for (int n = stages_ - 1; n >= 0; --n) {
    const bool is_last = n + 1 == stages_;
    for (int first = n; first < (n == 0 ? 1 : layers_); ++first) {
      Choice& choice = best[n][first];
      for (int last = is_last ? layers_ - 1 : first; last < layers_ - (is_last ? 0 : 1); ++last) {
        if (Slowest(n, first, last) > limit) continue;
        Range range = RangeOf(n, first, last);
        const double coded = Coded(n, first, last);
        range.total += coded + Taken(n, first, last);
        range.pass += coded;
        double u = 0;
        int64_t cap = 1;
        if (!is_last) {
          const Choice& next = best[n + 1][last + 1];
          if (next.value == kInfinity) continue;
          u = next.value + LinkOf(n, last).round / period;
          // Beyond every limit, and perhaps of int64_t.
          if (u > static_cast<double>(max_cap)) continue;
          cap = std::max<int64_t>(
              next.cap, static_cast<int64_t>(std::ceil(u + range.total / period - kRounding)));
        }
        if (cap > max_cap || !fits(n, first, last, cap)) continue;
        const double value = std::max(u, static_cast<double>(cap - 1)) + range.pass / period;
        if (value < choice.value) choice = {value, last, cap};
      }
    }
  }
  if (best[0][0].value == kInfinity) return std::nullopt;
  Placement placement;
  placement.order = order_;
  placement.codecs.assign(stages_ - 1, codec_);
  for (int n = 0, first = 0; n < stages_; ++n) {
    const Choice& choice = best[n][first];
    placement.last_layer.push_back(choice.last);
    placement.caps.push_back(choice.cap);
    first = choice.last + 1;
  }
  return placement;
}

std::optional<OrderSearch::Found> OrderSearch::Best(int64_t max_cap) const {
  double low = LowestPeriod();
  if (std::optional<Placement> at_once = Reach(low, max_cap)) return Found{*at_once, low};
  if (low == 0) low = 1e-12;
  double high = low;
  std::optional<Placement> found;
  // With one in flight everywhere a period of everything in a row is reached, unless memory is
  // short.
  for (int doublings = 0; !found.has_value() && doublings < 64; ++doublings) {
    high *= 2;
    found = Reach(high, max_cap);
  }
  if (!found.has_value()) return std::nullopt;
  while (high - low > 1e-7 * high) {
    const double middle = (low + high) / 2;
    if (std::optional<Placement> reached = Reach(middle, max_cap)) {
      found = std::move(reached);
      high = middle;
    } else {
      low = middle;
    }
  }
  return Found{*std::move(found), high};
}

}  // namespace runnel::policies
