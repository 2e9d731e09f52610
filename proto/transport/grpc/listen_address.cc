#include "proto/transport/grpc/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
};

// Not OK if it is no IP literal.
absl::StatusOr<SocketAddress> ToSocketAddress(const Address& address) {
  SocketAddress result;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&result.storage);
  if (inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(address.port));
    result.size = sizeof(*v4);
    return result;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&result.storage);
  if (inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(address.port));
    result.size = sizeof(*v6);
    return result;
  }
  return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", address.ToString(),
                                                 ": the host must be an IP address or localhost"));
}

absl::Status CannotListen(const Address& address, int error) {
  const std::string text =
      absl::StrCat("cannot listen on ", address.ToString(), ": ",
                   error == EADDRINUSE ? "the port is in use" : strerror(error));
  if (error == EADDRINUSE) return absl::AlreadyExistsError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::InvalidArgumentError(text);
}

// Binds for a moment: gRPC itself would only say that it failed.
absl::Status TryBind(const Address& address, const SocketAddress& socket_address) {
  const int fd = socket(socket_address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return CannotListen(address, errno);
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const int error =
      bind(fd, reinterpret_cast<const sockaddr*>(&socket_address.storage), socket_address.size) == 0
          ? 0
          : errno;
  close(fd);
  return error == 0 ? absl::OkStatus() : CannotListen(address, error);
}

// Address towards the first address of `host` that has a route.
absl::StatusOr<std::string> LocalHostOf(const addrinfo& peer) {
  const int fd = socket(peer.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(strerror(errno));
  sockaddr_storage local = {};
  socklen_t size = sizeof(local);
  auto* const generic = reinterpret_cast<sockaddr*>(&local);
  // A datagram socket's connection is only the choice of a route.
  const bool found =
      connect(fd, peer.ai_addr, peer.ai_addrlen) == 0 && getsockname(fd, generic, &size) == 0;
  const int error = errno;
  close(fd);
  if (!found) return absl::UnavailableError(strerror(error));
  char host[NI_MAXHOST] = "";
  if (getnameinfo(generic, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
    return absl::UnavailableError("the address has no text");
  return std::string(host);
}

}  // namespace

absl::StatusOr<std::string> LocalHostTowards(const Address& peer) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(peer.host.c_str(), absl::StrCat(peer.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot look up ", peer.ToString(), ": ", gai_strerror(error)));
  }
  absl::StatusOr<std::string> host;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    host = LocalHostOf(*one);
    if (host.ok()) break;
  }
  freeaddrinfo(found);
  if (host.ok()) return host;
  return absl::UnavailableError(
      absl::StrCat("no route to ", peer.ToString(), ": ", host.status().message()));
}

absl::Status CheckDialAddress(const Address& address, bool allow_non_loopback) {
  if (address.is_loopback() || allow_non_loopback) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "does not dial ", address.ToString(),
      ": only on the loopback interface (127.0.0.1) as long as streams are not encrypted "
      "(`runnel-worker --join`); --insecure-network allows it, for isolated networks"));
}

absl::StatusOr<Address> ToListenAddress(const std::string& text, bool allow_non_loopback) {
  RUNNEL_ASSIGN_OR_RETURN(Address address, ParseAddress(text));
  if (address.host == "localhost") address.host = "127.0.0.1";
  RUNNEL_ASSIGN_OR_RETURN(const SocketAddress socket_address, ToSocketAddress(address));
  if (!address.is_loopback() && !allow_non_loopback) {
    return absl::PermissionDeniedError(absl::StrCat(
        "does not listen on ", address.ToString(),
        ": only on the loopback interface (127.0.0.1) as long as streams are not encrypted "
        "(`runnel-central init`); --insecure-network allows it, for isolated networks"));
  }
  RUNNEL_RETURN_IF_ERROR(TryBind(address, socket_address));
  return address;
}

}  // namespace runnel
