#pragma once

// What the loss of a worker would cost, in time: the steps since the barrier to go back to are
// trained again, behind a plan that has to come into force. For so long a worker that may come back
// is worth waiting for: if it does not, the loss has cost at most twice its price.
//
// Pure. Times are by central's clock.

#include <algorithm>
#include <cstdint>

namespace runnel {

class LossPrice {
 public:
  // A run that stands for longer looks dead to people.
  static constexpr int64_t kMostNs = 30'000'000'000;

  // Often, once there is a plan. is_changing: one is coming into force. kept_ns: when the barrier to go back to was
  // reached.
  void Watch(bool is_changing, int64_t kept_ns, int64_t now_ns) {
    if (is_changing) {
      if (changing_since_ns_ == 0) changing_since_ns_ = now_ns;
      return;
    }
    kept_ns_ = kept_ns;
    if (changing_since_ns_ == 0) {
      if (changed_ns_ == 0) changed_ns_ = now_ns;  // the first one took no time
      return;
    }
    changed_ns_ = now_ns;
    change_ns_ = now_ns - changing_since_ns_;
    changing_since_ns_ = 0;
  }

  // Of a worker that was last heard at heard_ns. 0 before the first plan holds.
  int64_t NsOf(int64_t heard_ns) const {
    if (changed_ns_ == 0) return 0;
    const int64_t trained_ns = std::max<int64_t>(heard_ns - std::max(kept_ns_, changed_ns_), 0);
    return std::min(trained_ns + change_ns_, kMostNs);
  }

 private:
  int64_t kept_ns_ = 0;
  int64_t changing_since_ns_ = 0;  // 0: no plan is coming into force
  int64_t changed_ns_ = 0;         // when the last one did
  int64_t change_ns_ = 0;          // how long it took
};

}  // namespace runnel
