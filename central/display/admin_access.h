#pragma once

// Who may read and who may give orders over central's HTTP side. On loopback the host's users read, and
// the name by which they ask is checked. Over a network there is TLS, and a reader shows one of
//
//   the read token      Authorization: Bearer TOKEN
//   the order token     the same, or X-Runnel-Token: TOKEN; it also gives orders
//   a certificate       of an operator of the cluster; it also gives orders

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "proto/crypto/certificate.h"
#include "proto/crypto/identity.h"

namespace httplib {
struct Request;
}

namespace runnel {

struct AdminNetwork {
  std::string host;   // where to listen: an IP address
  Identity identity;  // central's; its authority signs the certificates of operators
  std::string read_token;
  // PermissionDenied: the certificate was revoked. Any thread.
  std::function<absl::Status(const CertificateInfo&)> check_peer;
};

class AdminAccess {
 public:
  enum class Right : uint8_t { kNone, kRead, kOrder };

  // network: none on loopback.
  AdminAccess(std::optional<AdminNetwork> network, std::string order_token)
      : network_(std::move(network)), order_token_(std::move(order_token)) {}

  const std::optional<AdminNetwork>& network() const { return network_; }
  const std::string& order_token() const { return order_token_; }

  // Any thread.
  Right RightOf(const httplib::Request& request) const;
  // Empty: it may be answered. Else why not: a page of another site made a browser ask.
  std::string ForeignReason(const httplib::Request& request) const;

 private:
  bool IsOperator(const httplib::Request& request) const;

  const std::optional<AdminNetwork> network_;
  const std::string order_token_;
};

}  // namespace runnel
