#pragma once

// What a worker does when a run is over for it, or a dial was in vain: it ends, or dials again
// after a pause that grows while it is in vain. A state machine: no thread, no clock.

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace runnel {

class RejoinPolicy {
 public:
  struct Next {
    bool ends = false;
    absl::Status status;   // if it ends: with what
    int64_t pause_ms = 0;  // else: before the next dial
    std::string line;      // for people; empty: nothing new
  };

  // once: for one run, and no other.
  explicit RejoinPolicy(bool once) : once_(once) {}

  // status: what the run, or the try, ended with. welcomed: central took the worker.
  Next After(const absl::Status& status, bool welcomed);

 private:
  const bool once_;
  std::string last_line_;
  int tries_in_vain_ = 0;
};

}  // namespace runnel
