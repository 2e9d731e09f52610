#pragma once

// Two nodes that cannot dial each other, and the real control listener that relays between them.

#include <memory>

#include "tests/conformance/transport_harness.h"

namespace runnel {

std::unique_ptr<TransportLab> MakeRelayLab();

}  // namespace runnel
