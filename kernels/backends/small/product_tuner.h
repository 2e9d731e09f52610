#pragma once

// Finds for each kind of product the fastest order of operands, kernel and tile, by time.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernels/backends/backend.h"
#include "kernels/backends/small/products.h"
#include "proto/base/clock.h"

namespace runnel::small {

class ProductTuner final : public Tuner {
 public:
  ProductTuner(int64_t l1_bytes, double usual_seconds, HalfSums sums = HalfSums::kFloat)
      : l1_bytes_(l1_bytes), usual_seconds_(usual_seconds), sums_(sums) {}

  TuningSubject subject() const override;
  double usual_seconds() const override { return usual_seconds_; }
  std::vector<TuningChoice> choices() const override;
  int Adopt(const std::vector<TuningChoice>& kept, bool is_checked) override;
  void BeginSearch(double seconds, bool anew, Backend* specification) override;
  void EndSearch() override { left_seconds_ = 0; }

  // If there is time left: searches the kinds of the program that are not known. What does not run
  // is no error: the rule's choice stays.
  void Search(const Program& program, NearMemory l1);
  // What is known, else the rule.
  ProductChoice ChoiceFor(const ProductShape& shape) const;

 private:
  struct Candidate {
    Part part = Part::kForward;
    Instruction instruction;
    ProductShape shape;
    int uses = 0;
  };
  class Trial;

  std::vector<Candidate> CandidatesOf(const Program& program) const;
  void SearchClass(const Program& program, const Candidate& candidate, NearMemory l1);

  const int64_t l1_bytes_;
  const double usual_seconds_;
  const HalfSums sums_;
  const MonotonicClock clock_;
  std::map<std::string, TuningChoice> choices_;  // by class
  std::map<std::string, std::string> hints_;     // of other kernels: tried first
  int64_t end_nanos_ = 0;                        // of the time for the class that is searched
  double left_seconds_ = 0;
  bool anew_ = false;
};

// Whether the choice can compute the product in so much L1.
bool Fits(const ProductShape& shape, const ProductChoice& choice, int64_t l1_bytes);

}  // namespace runnel::small
