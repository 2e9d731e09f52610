#pragma once

// Which centrals this worker has seen. A run that goes on with another central has a higher life
// there; one that was stopped meanwhile and continues does no harm any more: whoever has seen the
// higher life takes no orders from it, also when it was started again in between. One thread.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace runnel {

class CentralLives {
 public:
  // path: a file that keeps what was seen; empty: none does. A file that cannot be read or written
  // is as good as none.
  explicit CentralLives(std::string path = "");

  // Whether this is the latest life of the run, as far as this worker has seen.
  bool Admit(const std::string& run, int64_t life);

 private:
  static constexpr size_t kMostRuns = 256;  // a worker serves one run after the other for months

  std::string path_;
  std::vector<std::pair<std::string, int64_t>> highest_;  // by run, the last one that was new last
};

}  // namespace runnel
