#pragma once

// Answers of a TCP port to a connect.

#include <cstdint>

namespace runnel {

enum class PortAnswer : uint8_t {
  kAnswered,  // somebody listens there; whether he does anything is another question
  kRefused,   // the host is there, and nobody listens
  kNone,      // nothing comes back: the host is gone, or the way to it
};

}  // namespace runnel
