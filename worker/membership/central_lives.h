#pragma once

// Which centrals this worker has seen. A run that goes on with another central has a higher life
// there; one that was stopped meanwhile and continues does no harm any more: whoever has seen the
// higher life takes no orders from it. One thread.

#include <cstdint>
#include <map>
#include <string>

namespace runnel {

class CentralLives {
 public:
  // Whether this is the latest life of the run, as far as this worker has seen.
  bool Admit(const std::string& run, int64_t life) {
    if (highest_.size() >= kMostRuns && highest_.count(run) == 0) highest_.erase(highest_.begin());
    int64_t& highest = highest_[run];
    if (life < highest) return false;
    highest = life;
    return true;
  }

 private:
  static constexpr size_t kMostRuns = 256;  // a worker serves one run after the other for months

  std::map<std::string, int64_t> highest_;
};

}  // namespace runnel
