#include "proto/crypto/join_client.h"

#include <netdb.h>
#include <openssl/pem.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/crypto/join_exchange.h"
#include "proto/crypto/openssl.h"
#include "proto/crypto/tls_context.h"

namespace runnel {
namespace {

using SteadyClock = std::chrono::steady_clock;
using Deadline = SteadyClock::time_point;
constexpr std::chrono::milliseconds kBetweenTries{300};
// Longest silence that nobody takes for a hung program.
constexpr std::chrono::seconds kSilence{2};

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

std::string PlaceOf(const JoinOptions& options) {
  return absl::StrCat(options.host, ", port ", options.port);
}

// Reads, writes and the connection itself end at the deadline.
void SetPatience(int fd, Deadline deadline) {
  const auto left = std::max<int64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(deadline - SteadyClock::now()).count(),
      1000);
  timeval time = {};
  time.tv_sec = left / 1'000'000;
  time.tv_usec = left % 1'000'000;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

// Whether somebody listens there.
bool TryConnect(const addrinfo& address, Deadline deadline, Descriptor& connection) {
  connection.fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection.fd < 0) return false;
  SetPatience(connection.fd, deadline);
  return connect(connection.fd, address.ai_addr, address.ai_addrlen) == 0;
}

absl::StatusOr<std::unique_ptr<Descriptor>> Connect(const JoinOptions& options, Deadline deadline) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(options.host.c_str(), absl::StrCat(options.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--join: cannot look up ", options.host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const auto patience = std::chrono::milliseconds(options.timeout_ms);
  const Deadline silent_until =
      SteadyClock::now() + std::min<std::chrono::milliseconds>(kSilence, patience / 2);
  bool is_told = options.tell == nullptr;
  while (true) {
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      auto connection = std::make_unique<Descriptor>();
      // An address that swallows packets must not hold the line up.
      if (TryConnect(*one, is_told ? deadline : silent_until, *connection)) return connection;
    }
    if (!is_told && SteadyClock::now() >= silent_until) {
      is_told = true;
      options.tell(
          absl::StrCat("nobody answers at ", PlaceOf(options),
                       " yet: is `runnel-central train --workers` running there? Trying for ",
                       options.timeout_ms / 1000, " s"));
    }
    if (SteadyClock::now() + kBetweenTries > deadline) {
      return absl::UnavailableError(absl::StrCat("no central takes new workers at ",
                                                 PlaceOf(options), " within ", options.timeout_ms,
                                                 " ms"));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

std::string ToPem(X509* certificate) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return TextOf(bio.get());
}

// The certificate of the peer's cluster, if it is the token's and the peer is its central.
absl::StatusOr<std::string> AuthorityOf(SSL* ssl, const JoinOptions& options) {
  const absl::Status other = absl::PermissionDeniedError(
      absl::StrCat("--join: the central at ", PlaceOf(options),
                   " is not that of the cluster that the token is for"));
  const STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl);
  if (chain == nullptr || sk_X509_num(chain) < 2) return other;
  const std::string certificate = ToPem(sk_X509_value(chain, 0));
  std::string authority = ToPem(sk_X509_value(chain, sk_X509_num(chain) - 1));
  RUNNEL_ASSIGN_OR_RETURN(const std::string hash, KeyHash(authority));
  if (hash != options.token.authority_hash) return other;
  RUNNEL_RETURN_IF_ERROR(VerifySignature(certificate, authority, options.now_s()));
  const absl::StatusOr<CertificateInfo> info = ReadCertificate(certificate);
  if (!info.ok() || !(info->subject == CentralSubject())) return other;
  return authority;
}

absl::StatusOr<std::string> ReadReply(SSL* ssl) {
  std::string text;
  char bytes[1024];
  int got = 0;
  while (text.size() <= kMaxJoinReplyBytes && (got = SSL_read(ssl, bytes, sizeof(bytes))) > 0)
    text.append(bytes, static_cast<size_t>(got));
  if (SSL_get_error(ssl, got) == SSL_ERROR_ZERO_RETURN) return text;
  ERR_clear_error();
  return absl::UnavailableError(
      "--join: central closed the connection without an answer. The port of the join door is the "
      "one "
      "that `runnel-central train` prints: one above the control port, 7001 beside 7000");
}

}  // namespace

absl::StatusOr<Joined> JoinCluster(const JoinOptions& options) {
  const Deadline deadline = SteadyClock::now() + std::chrono::milliseconds(options.timeout_ms);
  Joined joined;
  RUNNEL_ASSIGN_OR_RETURN(joined.identity.key_pem, NewKey());
  RUNNEL_ASSIGN_OR_RETURN(const std::string request, NewRequest(joined.identity.key_pem));
  RUNNEL_ASSIGN_OR_RETURN(const OwnedSslContext context, DiallingContext());
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Descriptor> connection, Connect(options, deadline));
  SetPatience(connection->fd, deadline);
  const OwnedSsl ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), connection->fd);
  if (SSL_connect(ssl.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        absl::StrCat("--join: what listens at ", PlaceOf(options),
                     " is no join door; `runnel-central train` says where its is"));
  }
  RUNNEL_ASSIGN_OR_RETURN(joined.identity.authority_pem, AuthorityOf(ssl.get(), options));
  const std::string text =
      JoinRequest{options.token.secret, options.name, options.otherwise_name, request}.ToString();
  SSL_write(ssl.get(), text.data(), static_cast<int>(text.size()));
  RUNNEL_ASSIGN_OR_RETURN(const std::string answer, ReadReply(ssl.get()));
  const absl::StatusOr<JoinReply> reply = ParseJoinReply(answer);
  if (!reply.ok())
    return absl::Status(reply.status().code(),
                        absl::StrCat("--join: central refused: ", reply.status().message()));
  RUNNEL_RETURN_IF_ERROR(
      VerifySignature(reply->certificate_pem, joined.identity.authority_pem, options.now_s()));
  joined.identity.certificate_pem = reply->certificate_pem;
  joined.control_port = reply->control_port;
  return joined;
}

}  // namespace runnel
