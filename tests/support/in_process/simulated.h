#pragma once

// A network in virtual time: everything that happens in a simulation goes through one queue of
// events, so that a run is a function of its seed. Single-threaded.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "proto/base/clock.h"
#include "proto/transport/link/transport.h"
#include "tests/support/in_process/in_process.h"

namespace runnel {

class SimulatedNetwork {
 public:
  // Random numbers come from CounterRandom(faults.seed, kNetworkSimulation, ...), by the order in
  // which connections are dialled and frames are sent on each.
  explicit SimulatedNetwork(const InProcessFaults& faults);
  ~SimulatedNetwork();
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;

  // The transport of one node; all nodes of a network reach each other. Destroying it breaks the
  // node's connections. The network outlives it.
  std::unique_ptr<Transport> NewTransport(const std::string& name);

  // Virtual time, from 0. The clock lives as long as the network.
  int64_t now_ns() const;
  const Clock& clock() const;

  // Puts an event of the simulation's own into the queue; in the past means now. Events of one time
  // run in order of scheduling.
  void ScheduleAt(int64_t time_ns, std::function<void()> fn);
  // Runs the next event at its time. False: there is none.
  bool Step();
  // Runs all events up to this time, then it is this time.
  void RunUntil(int64_t time_ns);

  // Breaks a node's connections now; both ends hear Unavailable before this returns.
  void BreakConnections(const std::string& name);
  // While a node is unreachable, dialling from it and to it fails. Standing connections stay.
  void SetReachable(const std::string& name, bool reachable);
  // A node's process ends: it hears nothing any more, its peers hear Unavailable a delay later.
  void LoseNode(const std::string& name);
  // While a node is cut off, what is on its way to it and from it waits; it arrives in order when
  // the way is open again, on connections that have not broken since. Calls may nest.
  void SetCut(const std::string& name, bool cut);
  // As SetCut, between these two nodes alone.
  void SetLinkCut(const std::string& a, const std::string& b, bool cut);
  bool IsLinkCut(const std::string& a, const std::string& b) const;
  void BreakConnectionsBetween(const std::string& a, const std::string& b);
  bool passes(const std::string& a, const std::string& b) const;
  // Somebody accepts connections at this address.
  bool listens(const std::string& address) const;

 private:
  class VirtualTime;
  const std::shared_ptr<VirtualTime> time_;
  const std::shared_ptr<InProcessNetwork> network_;
};

}  // namespace runnel
