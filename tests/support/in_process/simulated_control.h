#pragma once

// The control plane of a SimulatedNetwork: streams in virtual time, whose connections break and
// come back. What makes a stream outlive its connections is the production ControlSession; messages
// are passed by reference, not serialised. Single-threaded.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/random.h"
#include "proto/transport/control/control_channel.h"
#include "tests/support/in_process/simulated.h"

namespace runnel {

struct SimulatedControlOptions {
  uint64_t seed = 0;
  // Uniform, for each message; order within a direction is kept.
  int64_t min_delay_ns = 0;
  int64_t max_delay_ns = 0;
  // So much longer at most a message with a state takes: others overtake it.
  int64_t max_state_ns = 0;
  // A broken stream dials again this often; it ends when nobody has listened for refused_ns, or
  // when it was broken for resume_ns.
  int64_t redial_ns = 100'000'000;
  int64_t refused_ns = 2'000'000'000;
  int64_t resume_ns = 900'000'000'000;
  // Whoever closes waits this long for the other end.
  int64_t close_ns = 2'000'000'000;
};

class SimulatedControl {
 public:
  // The network outlives it.
  SimulatedControl(SimulatedNetwork* network, const SimulatedControlOptions& options);
  // After everything that it made.
  ~SimulatedControl();
  SimulatedControl(const SimulatedControl&) = delete;
  SimulatedControl& operator=(const SimulatedControl&) = delete;

  // The transport of a process on this node. host: LocalHost's. Connect does not wait: central
  // answers at once or not at all.
  std::unique_ptr<ControlTransport> NewTransport(const std::string& node, const std::string& host);

  // The node's process has ended: its observers hear nothing any more. Before what it made goes.
  void LoseNode(const std::string& node);
  // The connections of the node's streams break; both ends hear of it now.
  void BreakConnections(const std::string& node);
  // The network passes something that it did not before: delivers what was held back.
  void Flush();
  // Messages that left and are not known to have arrived, of the stream that has most.
  size_t most_kept() const;

  class Core;  // in simulated_control.cc

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace runnel
