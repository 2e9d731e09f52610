#pragma once

// What is found out by trying, on this device: which kernels of a backend are fastest for products
// of some shapes, which slices of a batch are, and what single kernels take. Nothing of it can be
// seen in a result.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/ir/conv_shape.h"
#include "kernels/ir/passes/batch_split.h"
#include "kernels/ir/program.h"
#include "proto/base/clock.h"

namespace runnel {

class Backend;

// ---- Kernels

// What choices hold for.
struct TuningSubject {
  std::string backend;
  std::string family;  // devices that are likely to want the same: of one maker's driver
  std::string device;
  std::string driver;
  std::string kernels;  // another text of the kernels, another value

  friend bool operator==(const TuningSubject&, const TuningSubject&) = default;
};

struct TuningChoice {
  std::string shape_class;
  std::string kernel;       // as the backend names it
  double seconds = 0;       // of one product of the class with it
  double rule_seconds = 0;  // with the kernel that is taken where nothing is tuned
  int tried = 0;            // kernels whose results were compared and that were timed
  int uses = 0;             // products of the class in a step of the program that was searched

  friend bool operator==(const TuningChoice&, const TuningChoice&) = default;
};

// Of one backend, which owns it. One thread, that of the backend's Prepare.
class Tuner {
 public:
  virtual ~Tuner() = default;
  virtual TuningSubject subject() const = 0;
  // A search at the first start takes so long for a stage; 0: this device is tuned on request only.
  virtual double usual_seconds() const = 0;

  // What is known, by class.
  virtual std::vector<TuningChoice> choices() const = 0;
  // Takes what was kept. is_checked: found by this device, driver and kernels; others are tried
  // first in a search, and not believed before. What the device does not have is left out, and so
  // are classes that are known. Returns how many were taken.
  virtual int Adopt(const std::vector<TuningChoice>& kept, bool is_checked) = 0;

  // Programs that are prepared from now on are searched for unknown classes, for so long in all,
  // the largest products first; with `anew` for known ones too. Each kernel computes a small
  // product as `specification` does, bit for bit (floats: within the bound of its rounding), and
  // the large one as the kernel of the rule does, bit for bit, or is not taken. `specification`
  // is a backend of the host that outlives the search.
  virtual void BeginSearch(double seconds, bool anew, Backend* specification) = 0;
  virtual void EndSearch() = 0;
};

// Of a backend whose single kernels can be timed, which owns it: for layer reports. One thread.
class KernelTimer {
 public:
  virtual ~KernelTimer() = default;
  // Wall-clock seconds of each convolution or linear layer in FP32, as training has it, for a
  // batch: medians over `passes` after one that does not count.
  virtual std::vector<double> ConvSeconds(absl::Span<const ConvShape> shapes, int64_t batch,
                                          int passes) = 0;
  // Operations a second (a multiply-accumulate is two) of one thread's inner loop over INT8
  // operands in the nearest cache, with the best kernels of this machine: what no product can
  // exceed. The best of a few short runs.
  virtual double MeasureInt8Peak() = 0;
};

// ---- Slices of a batch

// Result for one kind of product: the same code and shapes.
struct SplitChoice {
  Part part = Part::kForward;
  Instruction instruction;
  std::vector<BatchSeconds> profile;  // T(B') of the slices that were timed
  int64_t samples = 0;                // samples of a slice; the whole batch: not split
};

struct SplitProfile {
  std::vector<SplitChoice> choices;
  int products = 0;    // products of the program
  int split = 0;       // split ones of these
  int untimed = 0;     // products that the time did not suffice for: whole
  double seconds = 0;  // seconds that the search took
};
// "3 of 29 products in slices (2.1 s of timing)"
std::string ToString(const SplitProfile& profile);

inline constexpr double kSplitTimingSeconds = 3;

// --batch-split auto: times every divisor of the batch for each product of training on `backend`,
// the whole batch run in such slices on random values, until limit_seconds are over, and sets
// Instruction::split to what is fastest. A split has to save 3 %. The bytes do not depend on it.
// Errors: those of Backend::Prepare and Executable::Run. For backends that take slices
// (BackendTraits::takes_slices): others are not to be asked.
absl::StatusOr<SplitProfile> SplitByProfile(Backend& backend, const Clock& clock,
                                            double limit_seconds, Program& program);

}  // namespace runnel
