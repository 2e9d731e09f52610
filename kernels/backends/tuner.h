#pragma once

// What a backend finds out by trying: which of its kernels is fastest on this device for products
// of some shapes. Nothing of it can be seen in a result.

#include <string>
#include <vector>

namespace runnel {

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

class Backend;

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

}  // namespace runnel
