#include "proto/transport/link/address.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace runnel {

std::string Address::ToString() const {
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

bool Address::is_loopback() const {
  if (host == "localhost" || host == "::1") return true;
  // "127.evil.org" starts the same: digits and dots only.
  return absl::StartsWith(host, "127.") && host.find_first_not_of("0123456789.") == host.npos;
}

bool Address::is_wildcard() const { return host == "0.0.0.0" || host == "::"; }

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  const auto bad = [&text] {
    return absl::InvalidArgumentError(absl::StrCat("address \"", text, "\" is not host:port"));
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad();
  Address address;
  address.host = text.substr(0, colon);
  if (address.host.front() == '[') {
    if (address.host.size() < 3 || address.host.back() != ']') return bad();
    address.host = address.host.substr(1, address.host.size() - 2);
  } else if (absl::StrContains(address.host, ':')) {
    return bad();
  }
  const std::string port = text.substr(colon + 1);
  if (port.find_first_not_of("0123456789") != port.npos || !absl::SimpleAtoi(port, &address.port) ||
      address.port > 65535) {
    return bad();
  }
  return address;
}

bool IsLoopbackAddress(const std::string& text) {
  const absl::StatusOr<Address> address = ParseAddress(text);
  return address.ok() && address->is_loopback();
}

}  // namespace runnel
