#pragma once

#include <cstdint>
#include <string>

namespace runnel {

// "runnel-worker 0.1.0, protocol 20": programs of one protocol version work together.
std::string VersionText(const std::string& program, int32_t protocol_version);

}  // namespace runnel
