#pragma once

// The DSP as a process behind a contract: it maps memory, takes lists of operations and says when
// they are done. One thread.

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backends/hexagon/list_sender.h"
#include "kernels/backends/hexagon/op_list.h"
#include "kernels/backends/hexagon/shared_memory.h"

namespace runnel::hexagon {

class DspSession {
 public:
  virtual ~DspSession() = default;
  // Name for numerics classes and messages: "v67-emulated".
  virtual const char* name() const = 0;
  // The processor and the way to it, for people; part of a line.
  virtual std::string description() const { return name(); }
  // Its times are not those of a DSP.
  virtual bool is_emulated() const { return false; }
  // Memory that operations name by offsets.
  virtual const std::shared_ptr<SharedMemory>& memory() const = 0;
  // Current memory for packed weights: less the more memory programs have, if both have one budget.
  virtual uint32_t packed_bytes() const = 0;
  // The part of packed_bytes for weights that keep a place, for lists submitted from now on.
  virtual void KeepPlaces(uint32_t kept_bytes) = 0;
  // Hands over operations, 1 to kMaxOps, to be run in order. One list at a time. `list` is a number
  // by which the DSP keeps the operations, so that those which come with it again are sent as what
  // changed of them; 0: they do not come again. Unavailable, and from then on for each call: the
  // DSP is lost, and why.
  virtual absl::Status Submit(absl::Span<const DspOp> ops, uint64_t list = 0) = 0;
  // Waits until the list is done. Unavailable as Submit; ResourceExhausted: an operation found no
  // memory, and the session goes on.
  virtual absl::Status Wait() = 0;
  // Each call fails from now on.
  virtual bool lost() const = 0;
  // Counts of the last finished list, by operation; zeros where the processor does not count.
  virtual absl::Span<const DspCounts> counts() const = 0;
  virtual ListTraffic traffic() const { return {}; }
};

}  // namespace runnel::hexagon
