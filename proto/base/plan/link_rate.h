#pragma once

// Rate of one direction of a link.

namespace runnel {

// A value. A rate that is not set means "no limit" where it is assumed, and "not measured" where it
// is measured. Flags, JSON and wire say it in 10^6 bits a second or bytes a second: convert there.
class LinkRate {
 public:
  constexpr LinkRate() = default;  // not set
  // 0 gives a rate that is not set. Whoever takes values from outside refuses negative ones.
  static constexpr LinkRate Mbps(double megabits_per_second) {
    return LinkRate(megabits_per_second);
  }
  static constexpr LinkRate BytesPerSecond(double bytes) { return LinkRate(bytes * 8e-6); }

  constexpr bool is_set() const { return mbps_ > 0; }
  constexpr double mbps() const { return mbps_; }
  constexpr double bytes_per_second() const { return mbps_ * 1e6 / 8; }
  // Seconds for which these bytes occupy the direction; 0 without a limit.
  constexpr double Seconds(double bytes) const { return is_set() ? bytes * 8 / (mbps_ * 1e6) : 0; }

  friend constexpr LinkRate operator*(LinkRate rate, double factor) {
    return LinkRate(rate.mbps_ * factor);
  }
  friend constexpr bool operator==(LinkRate, LinkRate) = default;

 private:
  explicit constexpr LinkRate(double mbps) : mbps_(mbps) {}

  double mbps_ = 0;
};

// The lower one of two rates, as far as they are set.
constexpr LinkRate SlowerOf(LinkRate a, LinkRate b) {
  if (!a.is_set()) return b;
  if (!b.is_set()) return a;
  return a.mbps() <= b.mbps() ? a : b;
}

}  // namespace runnel
