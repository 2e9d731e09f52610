#pragma once

// What tuners found out on this device, kept from run to run beside the verdicts: one text file for
// a device, driver and text of the kernels. Files are written whole or not at all. One thread.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backends/backend.h"

namespace runnel {

struct KeptTunings {
  std::vector<TuningChoice> same;    // of this very subject
  std::vector<TuningChoice> family;  // of the same device first, then of its family
  // Of files that are damaged, a line each; they count as absent.
  std::vector<std::string> complaints;
};

class TuningStore {
 public:
  // folder: made when the first tunings are kept; empty: nothing is kept.
  explicit TuningStore(std::string folder) : folder_(std::move(folder)) {}

  KeptTunings Find(const TuningSubject& subject) const;
  // In place of what was kept of the subject. Errors name the file (proto/process/atomic_file.h).
  absl::Status Keep(const TuningSubject& subject, const std::vector<TuningChoice>& choices) const;
  // Of the subject's file, also where it is not there; empty without a folder.
  std::string PathFor(const TuningSubject& subject) const;

 private:
  std::string folder_;
};

}  // namespace runnel
