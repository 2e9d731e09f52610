#pragma once

// Keeps the check-point that was best on the test set beside the newest ones: best.runnel, another
// name of its file, and best.json, which says its step and accuracy. A file that cannot be made costs
// the best check-point, not the run. One thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace runnel {

class BestCheckpoint {
 public:
  BestCheckpoint() = default;
  // Of a run with check-points in `folder`, also one that goes on: an earlier best counts.
  explicit BestCheckpoint(std::string folder);

  // The state of `step` is evaluated beside the training: its accuracy may come when newer
  // check-points have taken its place.
  void Expect(int64_t step) { steps_[step].is_expected = true; }
  // The check-point of `step` is at `path`.
  void Written(int64_t step, const std::string& path);
  // 0 to 1.
  void Evaluated(int64_t step, double accuracy);

 private:
  struct Step {
    bool is_expected = false;
    std::string file;  // of its check-point
    std::optional<double> accuracy;
  };
  std::string Kept(int64_t step) const;
  void Decide(int64_t step);

  std::string folder_;  // empty: there are no check-points
  std::map<int64_t, Step> steps_;
  double best_ = -1;
};

}  // namespace runnel
