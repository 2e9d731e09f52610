#pragma once

// Keys (ECDSA on P-256), requests and certificates (X.509) as PEM texts. A certificate says one
// name and one role. Time is an argument: seconds since 1970. Pure functions but for new keys and
// serial numbers; any thread.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace runnel {

// Rights of a certificate's holder.
enum class Role : uint8_t {
  kServer,    // be central: listen for workers, feed stages
  kWorker,    // offer itself, be a stage
  kOperator,  // give orders to a central
};

// The holder of a certificate.
struct Subject {
  Role role = Role::kWorker;
  std::string name;

  // "worker/pi-1"
  std::string ToString() const;
  // The DNS name in the certificate, by which a dialling end checks it: "pi-1.worker.runnel".
  std::string HostName() const;
  friend bool operator==(const Subject&, const Subject&) = default;
};
// InvalidArgument: not as Subject::ToString writes it.
absl::StatusOr<Subject> ParseSubject(absl::string_view text);

// The one name that a central has.
inline constexpr char kCentralName[] = "central";
inline Subject CentralSubject() { return {Role::kServer, kCentralName}; }

// Contents of a certificate.
struct CertificateInfo {
  Subject subject;
  std::string serial;  // hexadecimal digits
  int64_t not_before_s = 0;
  int64_t not_after_s = 0;
};

// The signing certificate of a cluster and its key.
struct Signer {
  std::string certificate_pem;
  std::string key_pem;
};

// Internal, here and below: OpenSSL failed.
absl::StatusOr<std::string> NewKey();
absl::StatusOr<Signer> NewSigner(int64_t not_before_s, int64_t not_after_s);
// A request to certify the key, signed with it. About 400 bytes.
absl::StatusOr<std::string> NewRequest(absl::string_view key_pem);

// A certificate for the key of a request. InvalidArgument: it is no request, its signature does not
// fit its key, or the key is not on P-256. Whatever else the request asks for does not count.
absl::StatusOr<std::string> Issue(const Signer& signer, absl::string_view request_pem,
                                  const Subject& subject, int64_t not_before_s,
                                  int64_t not_after_s);

// InvalidArgument: no certificate, or not one that Issue makes. The signature is not looked at.
absl::StatusOr<CertificateInfo> ReadCertificate(absl::string_view certificate_pem);
// SHA-256 of the public key: 32 bytes. InvalidArgument: no certificate.
absl::StatusOr<std::string> KeyHash(absl::string_view certificate_pem);
// PermissionDenied: `authority_pem` has not signed it, or it does not hold at now_s. The message
// says which.
absl::Status VerifySignature(absl::string_view certificate_pem, absl::string_view authority_pem,
                             int64_t now_s);

}  // namespace runnel
