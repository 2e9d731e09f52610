#pragma once

// Chooses the route of the next dial to a peer: directly to its address, or by central's relay. A
// state machine: no thread, no clock.
//
// Direct, until kTries dials in a row got no answer; then in turn relay, direct, relay, ... A dial
// that failed only after kSlowNs counts for kTries: the address swallows packets, and each further
// try would cost as much. The route on which a frame came is the first choice from then on, for
// kTrustNs. "Not ready yet" is an answer.

#include <cstdint>

namespace runnel {

class DialRoute {
 public:
  enum class Way : uint8_t { kStraight, kRelay };
  static constexpr int kTries = 2;
  static constexpr int64_t kSlowNs = 1'000'000'000;
  // A peer that could not be dialled may be in another network by now.
  static constexpr int64_t kTrustNs = 600'000'000'000;

  Way Next(int64_t now_ns);
  // The dial that began at `began_ns` has come to its end; heard: a frame had come.
  void Ended(Way way, bool heard, int64_t began_ns, int64_t now_ns);
  // A frame came.
  void Heard(Way way, int64_t now_ns);

 private:
  static Way Other(Way way) { return way == Way::kStraight ? Way::kRelay : Way::kStraight; }

  Way preferred_ = Way::kStraight;
  int64_t found_ns_ = 0;  // when a frame came by it
  int in_vain_ = 0;       // dials in a row
};

}  // namespace runnel
