#pragma once

// A transport within the process, for tests and simulations: real runs always use processes.
// Addresses are "host:port" of its own: only connections of the same transport object see each
// other.

#include <memory>

#include "proto/transport/link/transport.h"

namespace runnel {

// Observers of all its connections are called on one thread. Destroying the transport breaks what
// still stands; not on its own thread.
std::unique_ptr<Transport> MakeLoopbackTransport();

}  // namespace runnel
