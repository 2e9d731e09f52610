#pragma once

// The accepting end of a link as its dialling end needs to know it.

#include <string>

namespace runnel {

struct LinkTarget {
  std::string address;   // where to dial
  std::string peer;      // who is there (Connection::peer)
  std::string token;     // what to show
  std::string greeting;  // what it must answer: whoever else has its port does not know

  friend bool operator==(const LinkTarget&, const LinkTarget&) = default;
};

}  // namespace runnel
