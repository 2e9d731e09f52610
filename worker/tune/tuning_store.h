#pragma once

// Results of tuning on this device, kept from run to run beside the verdicts: one JSON file for a
// device, driver and text of the kernels. Files are written whole or not at all. One thread.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backends/backend.h"

namespace runnel {

struct KeptTunings {
  std::vector<TuningChoice> same;    // choices of this very subject
  std::vector<TuningChoice> family;  // choices of the same device first, then of its family
  // A line for each damaged file; damaged files count as absent.
  std::vector<std::string> complaints;
};

class TuningStore {
 public:
  // folder: made when the first tunings are kept; empty: nothing is kept.
  explicit TuningStore(std::string folder) : folder_(std::move(folder)) {}

  KeptTunings Find(const TuningSubject& subject) const;
  // Replaces the kept choices of the subject. Errors name the file (proto/process/atomic_file.h).
  absl::Status Keep(const TuningSubject& subject, const std::vector<TuningChoice>& choices) const;
  // Path of the subject's file, which need not exist; empty without a folder.
  std::string PathFor(const TuningSubject& subject) const;

 private:
  std::string folder_;
};

}  // namespace runnel
