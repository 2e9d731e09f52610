#pragma once

// A process's identity towards its peers, and its trust in them: its key, its certificate and the
// signing certificate of its cluster. As a text, as a file, and as a value that a running process
// replaces when the certificate is renewed.

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/crypto/certificate.h"

namespace runnel {

// Seconds since 1970. Any thread.
using WallClock = std::function<int64_t()>;
WallClock SystemWallClock();

struct Identity {
  std::string key_pem;
  std::string certificate_pem;
  std::string authority_pem;

  // The three behind each other: what identity.pem holds, and the variable of a worker that central
  // starts.
  std::string ToString() const;
};
// InvalidArgument: not the three texts, or not a certificate of ours.
absl::StatusOr<Identity> ParseIdentity(absl::string_view text);

// Environment variable by which central gives a worker that it starts its identity.
inline constexpr char kWorkerIdentityVariable[] = "RUNNEL_WORKER_IDENTITY";

// Two thirds of the certificate's time have passed, or more.
bool IsRenewalDue(const CertificateInfo& certificate, int64_t now_s);

// A folder that holds an identity: identity.pem, and authority.pem, the signing certificate alone.
// Errors as proto/process/atomic_file.h.
absl::Status WriteIdentity(const std::string& folder, const Identity& identity);
// NotFound: there is none. InvalidArgument: damaged; names the file. PermissionDenied: others may
// read it.
absl::StatusOr<Identity> ReadIdentity(const std::string& folder);

// Makes the folder (0700), and a file in it that only its owner reads (0600), whole or not at all.
absl::Status MakePrivateFolder(const std::string& folder);
absl::Status WritePrivateFile(const std::string& path, absl::string_view content);

// The identity of a running process. Thread-safe.
class IdentityHolder {
 public:
  // folder: where it is kept; empty: nowhere.
  IdentityHolder(Identity identity, std::string folder)
      : folder_(std::move(folder)), identity_(std::move(identity)) {}

  Identity Get() const;
  CertificateInfo info() const;
  const std::string& folder() const { return folder_; }
  // Replaces the identity from now on, and in the folder. Errors as WriteIdentity; the new identity
  // then counts only until the process ends.
  absl::Status Replace(Identity identity);

 private:
  const std::string folder_;
  mutable std::mutex mutex_;
  Identity identity_;  // guarded by mutex_
};

}  // namespace runnel
