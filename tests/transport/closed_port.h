#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace runnel {

// A port that refuses: taken, and nobody listens.
class ClosedPort {
 public:
  ClosedPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own = {};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof(own));
    socklen_t bytes = sizeof(own);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&own), &bytes);
    address_ = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
  }
  ~ClosedPort() { close(socket_); }
  const std::string& address() const { return address_; }

 private:
  const int socket_;
  std::string address_;
};

}  // namespace runnel
