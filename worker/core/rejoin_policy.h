#pragma once

// Decides what a worker does after a run or a vain dial: it ends, or dials again after a pause that
// grows with each vain dial. A state machine: no thread, no clock.

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace runnel {

class RejoinPolicy {
 public:
  struct Next {
    bool ends = false;
    absl::Status status;   // if it ends: with what
    int64_t pause_ms = 0;  // pause before the next dial otherwise
    std::string line;      // a line for people; empty: nothing new
  };

  // once: for one run, and no other.
  explicit RejoinPolicy(bool once) : once_(once) {}

  // status: how the run, or the dial, ended. welcomed: central took the worker for a run; OK without
  // that: it waited at a central that has none.
  Next After(const absl::Status& status, bool welcomed);

 private:
  const bool once_;
  std::string last_line_;
  int tries_in_vain_ = 0;
  bool is_sent_away_ = false;  // by a central that waits, for a run that begins elsewhere
};

}  // namespace runnel
