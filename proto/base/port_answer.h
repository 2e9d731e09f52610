#pragma once

// What a TCP port says to whoever knocks.

#include <cstdint>

namespace runnel {

enum class PortAnswer : uint8_t {
  kAnswered,  // somebody listens there; whether he does anything is another question
  kRefused,   // the host is there, and nobody listens
  kNone,      // nothing comes back: the host is gone, or the way to it
};

}  // namespace runnel
