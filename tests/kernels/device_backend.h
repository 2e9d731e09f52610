#pragma once

// A backend whose memory the host cannot address, for tests: another backend's arithmetic behind
// memory that faults when it is touched outside of Map and Run. What Map shows is a copy, which
// goes back at Unmap if it was asked for to be written, and is gone then.

#include <memory>

#include "kernels/backends/backend.h"

namespace runnel {

// `host` computes on host memory (ref, cpu). Run fails for an area that DeviceBackend did not
// allocate or that is mapped.
std::unique_ptr<Backend> MakeDeviceBackend(std::unique_ptr<Backend> host);

}  // namespace runnel
