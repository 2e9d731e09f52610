#pragma once

// Members of a run, as an operator sees and changes them (members.proto).

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/plan/processor_facts.h"

namespace runnel {

struct Member {
  std::string name;
  std::string state;    // text for people: "trains layers 0 to 2", "waits", "leaves", "gone"
  std::string address;  // address of its data links
  std::string numerics_class;
  int64_t memory_bytes = 0;  // 0: not known
  bool local = false;        // on central's host
  bool relayed = false;      // somebody cannot dial it, and reaches it by way of central
  std::vector<ProcessorFacts> processors = {};
  std::string backend_options = {};  // WorkerHello's
  std::string limits = {};           // WorkerHello's
};

struct MemberList {
  static constexpr int64_t kNoRun = -1;

  std::vector<Member> members;  // by device number
  int64_t step = 0;             // the last barrier; kNoRun: they wait for a run
  bool paused = false;          // or will be, at the next barrier
};

// The calls: what central carries out, and what an operator's program calls. Each is answered
// before it returns. Any thread. Unavailable: there is no run, or no central.
struct MemberCalls {
  std::function<absl::StatusOr<MemberList>()> list;
  // The worker's stage moves to others at the next barrier, then it leaves. NotFound: there is no
  // such worker; FailedPrecondition: it cannot leave, why.
  std::function<absl::Status(const std::string& name)> drain;
  // true: training stands from the next barrier on; false: it goes on.
  std::function<absl::Status(bool paused)> pause;
  // The run as it stands, JSON for programs and pages.
  std::function<absl::StatusOr<std::string>()> status = nullptr;
  // Leaves the port to a run that begins, and comes back when it is over. Unavailable: this central
  // does not wait for one.
  std::function<absl::Status()> give_way = nullptr;
  // What plan there would be, and how fast, under an assumption as `plan --what-if` takes it;
  // nothing is done. FailedPrecondition: nothing was measured; InvalidArgument: no such assumption.
  std::function<absl::StatusOr<std::string>(const std::string& assumption)> what_if = nullptr;
  // Above 0: all devices note from now on what they do, for so long; FailedPrecondition: they are
  // at it already, or have no stages yet. 0: the last trace, as central/display/chrome_trace.h
  // says; empty while it is under way, NotFound: none was begun.
  std::function<absl::StatusOr<std::string>(int64_t window_ms)> trace = nullptr;
  // Training ends at the next barrier, as by Ctrl-C. FailedPrecondition: that would lose the
  // weights, and is_sure is false.
  std::function<absl::Status(bool is_sure)> stop = nullptr;
  // The next barrier plans anew, and takes the plan that came out if it saves any time until the end.
  // FailedPrecondition: layers do not move in this run, why.
  std::function<absl::Status()> replan = nullptr;
};

}  // namespace runnel
