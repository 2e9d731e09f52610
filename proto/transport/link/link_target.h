#pragma once

// The accepting end of a link as its dialling end needs to know it.

#include <string>

namespace runnel {

struct LinkTarget {
  std::string address;   // address to dial
  std::string peer;      // name of the other end (Connection::peer)
  std::string token;     // token to show
  std::string greeting;  // answer that it must give: an attacker on its port does not know it

  friend bool operator==(const LinkTarget&, const LinkTarget&) = default;
};

}  // namespace runnel
