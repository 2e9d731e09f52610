#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/transport/link/frame.h"

namespace runnel {

// A sealed frame whose bytes are a function of its place.
Frame TestFrame(FrameKind kind, int64_t sequence, size_t payload_bytes, int generation = 0);
// Empty: it is exactly TestFrame of its own header. Otherwise what is wrong.
std::string WhatIsWrongWith(const Frame& frame);

}  // namespace runnel
