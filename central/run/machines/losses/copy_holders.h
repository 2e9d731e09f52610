#pragma once

// Which stages hold copies of which others' states (replication.h), so that what is lost together
// does not take both with it: a power strip, an access point, two neighbours. Pure.

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/transport/control/control.h"

namespace runnel {

// By stage: the last stages to which copies of its state go, at most one on each side; those between
// keep them too.
using CopyHolders = std::vector<std::vector<int>>;

// Each stage further costs another transfer, and memory of one stage more.
inline constexpr int kMostCopyHops = 4;

// What may be lost together with this device: its site, else the network of its address (IPv4: 24
// bits, IPv6: 64). Empty: not known.
std::string FailureDomain(const WorkerHello& hello);

// Domains by stage. The nearest stage of another domain within kMostCopyHops; where there is none
// the next but one; in the middle of three the neighbours on both sides.
CopyHolders HoldersApart(absl::Span<const std::string> domains);
// All that keep copies of this stage's state, the nearest first on each side.
std::vector<int> KeepersOf(const CopyHolders& holders, int stage);
// The next stage; of the last one the one before it.
CopyHolders NeighboursHold(int stages);

}  // namespace runnel
