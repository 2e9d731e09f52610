#pragma once

// Which stages hold copies of which others' states (replication.h), so that what is lost together
// does not take both with it: a power strip, an access point, two neighbours. Pure.

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/transport/control/control.h"

namespace runnel {

// By stage: the stages that hold copies of its state, at most one on each side.
using CopyHolders = std::vector<std::vector<int>>;

// Copies pass the stages between, so that each stage further costs another transfer.
inline constexpr int kMostCopyHops = 4;

// What may be lost together with this device: its site, else the network of its address (IPv4: 24
// bits, IPv6: 64). Empty: not known.
std::string FailureDomain(const WorkerHello& hello);

// Domains by stage. The nearest stage of another domain within kMostCopyHops; where there is none
// the next but one; in the middle of three the neighbours on both sides.
CopyHolders HoldersApart(absl::Span<const std::string> domains);
// The next stage; of the last one the one before it.
CopyHolders NeighboursHold(int stages);

}  // namespace runnel
