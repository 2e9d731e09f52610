#include "central/display/admin_access.h"

#include <httplib.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/crypto/https.h"
#include "proto/crypto/sha256.h"

namespace runnel {
namespace {

constexpr char kTokenHeader[] = "X-Runnel-Token";

// "localhost:9090", "[::1]".
bool IsThisHost(absl::string_view host) {
  const size_t port = host.rfind(':');
  const bool has_port = port != host.npos && host.back() != ']';
  const std::string name = absl::AsciiStrToLower(has_port ? host.substr(0, port) : host);
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]";
}

}  // namespace

bool AdminAccess::IsOperator(const httplib::Request& request) const {
  if (request.ssl == nullptr) return false;
  const absl::StatusOr<CertificateInfo> client = ClientOf(*request.ssl);
  return client.ok() && client->subject.role == Role::kOperator &&
         network_->check_peer(*client).ok();
}

AdminAccess::Right AdminAccess::RightOf(const httplib::Request& request) const {
  const std::string authorization = request.get_header_value("Authorization");
  absl::string_view bearer = authorization;
  if (!absl::ConsumePrefix(&bearer, "Bearer ")) bearer = "";
  if (EqualSecrets(request.get_header_value(kTokenHeader), order_token_)) return Right::kOrder;
  if (!network_.has_value()) return Right::kRead;
  if (EqualSecrets(bearer, order_token_) || IsOperator(request)) return Right::kOrder;
  return EqualSecrets(bearer, network_->read_token) ? Right::kRead : Right::kNone;
}

std::string AdminAccess::ForeignReason(const httplib::Request& request) const {
  // Every browser names the host; a client of HTTP/1.0 need not. It names the origin of a page that
  // asks.
  const std::string host = request.get_header_value("Host");
  const std::string origin = request.get_header_value("Origin");
  if (network_.has_value()) {
    // A browser has checked the host's certificate.
    if (origin.empty() || origin == absl::StrCat("https://", host)) return "";
    return "a page of another site asks\n";
  }
  if ((!request.has_header("Host") || IsThisHost(host)) &&
      (origin.empty() || IsThisHost(absl::StripPrefix(origin, "http://")))) {
    return "";
  }
  return "ask by http://127.0.0.1 or http://localhost\n";
}

}  // namespace runnel
