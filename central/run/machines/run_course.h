#pragma once

// How far a run has come: what it was ordered to do at the next barrier, what its stages stand for
// at this one, and how near it is to its end.

#include <cstdint>
#include <utility>

namespace runnel {

// One thread.
class RunCourse {
 public:
  // The reason why stages stand at a barrier, beside the work of a machine. kLeaving: they move away
  // from a device that leaves before they go on to stand for states.
  enum class StandsFor : uint8_t { kNothing, kStates, kMeasuring, kOperator, kLeaving };

  // Orders of the user or an operator for the next barrier.
  void OrderStop() { is_to_stop_ = true; }
  bool is_to_stop() const { return is_to_stop_; }
  void OrderPause(bool paused) { is_to_pause_ = paused; }
  bool is_to_pause() const { return is_to_pause_; }

  void Stand(StandsFor reason) { stands_for_ = reason; }
  void GoOn() { stands_for_ = StandsFor::kNothing; }
  bool Stands(StandsFor reason) const { return stands_for_ == reason; }

  // The last state is being collected, and then it is there.
  void CollectLast() {
    ending_ = Ending::kCollecting;
    GoOn();
  }
  bool collects_last() const { return ending_ == Ending::kCollecting; }
  void CollectedLast() { ending_ = Ending::kCollected; }
  bool has_last() const { return ending_ == Ending::kCollected; }
  // Nothing of the end has begun.
  bool trains() const { return ending_ == Ending::kNotYet; }
  // False: it has ended before.
  bool End() { return std::exchange(ending_, Ending::kEnded) != Ending::kEnded; }
  bool ended() const { return ending_ == Ending::kEnded; }
  // Training goes back to an earlier barrier.
  void GoBack() {
    GoOn();
    ending_ = Ending::kNotYet;
  }

 private:
  enum class Ending : uint8_t { kNotYet, kCollecting, kCollected, kEnded };

  bool is_to_stop_ = false;
  bool is_to_pause_ = false;
  StandsFor stands_for_ = StandsFor::kNothing;
  Ending ending_ = Ending::kNotYet;
};

}  // namespace runnel
